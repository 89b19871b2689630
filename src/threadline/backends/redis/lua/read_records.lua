-- uses: shown_records
-- Name, record and time of expiry of each of these names.
return shown_records(ARGV)
