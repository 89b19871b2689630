"""Graphs before they run: nodes, edges, schemas, and the plan that makes a step cheap."""
