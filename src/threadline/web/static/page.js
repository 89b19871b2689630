// What the page does beyond links and forms: copying, the keyboard, checking JSON while it is typed.
"use strict";

function copied(button) {
  const text = button.parentElement.querySelector("pre").textContent;
  navigator.clipboard.writeText(text).then(() => {
    const said = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = said; }, 1200);
  });
}

// j and k go through the rows of a list, Enter opens the one that is marked.
function rows() {
  return [...document.querySelectorAll("[data-rows] tbody tr, [data-rows] li")];
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("on"));
  all.forEach((row) => row.classList.remove("on"));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  next.classList.add("on");
  next.scrollIntoView({ block: "nearest" });
}

function open_row() {
  const link = document.querySelector("[data-rows] .on a");
  if (link) link.click();
}

function turn(direction) {
  const link = document.querySelector(`.pager a[rel="${direction}"]`);
  if (link) link.click();
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  Enter: open_row,
  n: () => turn("next"),
  p: () => turn("prev"),
  "/": () => document.querySelector('[data-key="/"]')?.focus(),
};

function check(area) {
  let wrong = "";
  try {
    JSON.parse(area.value);
  } catch (error) {
    wrong = error.message;
  }
  area.classList.toggle("wrong", Boolean(wrong));
  area.setCustomValidity(wrong);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copied(button);
});

document.addEventListener("input", (event) => {
  if (event.target.matches("[data-json]")) check(event.target);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, button, a, summary");
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
  return undefined;
});

// The page waits for its JSON to be whole before it lets a form go.
document.querySelectorAll("[data-json]").forEach(check);
