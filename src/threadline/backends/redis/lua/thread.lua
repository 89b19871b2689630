-- uses: common
-- The row of a thread, whatever state it is in, and the epoch of the pool.
return {redis.call('HGET', KEYS[THREADS], take()), redis.call('HGET', KEYS[POOL], 'epoch')}
