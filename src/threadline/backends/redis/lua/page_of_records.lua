-- uses: shown_records
-- A page: from (exclusive), to (exclusive), how many. Name, record and time of expiry of each, in order.
return shown_records(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, tonumber(ARGV[3])))
