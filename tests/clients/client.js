// ioredis: calls the commands, alone and in a pipeline.
'use strict';
const assert = require('assert');
const Redis = require('ioredis');

async function main() {
  const redis = new Redis({ host: '127.0.0.1', port: Number(process.argv[2]), password: 'secret' });
  assert.strictEqual(await redis.ping(), 'PONG');
  const checked = await redis.call('WEIR.CHECK', 'shop', 3, 'user', 'node');
  assert.deepStrictEqual([checked[0], checked[1], checked[2], checked[4]], [1, 0, -1, 'per-user']);
  const denied = await redis.call('WEIR.CHECK', 'shop', 1, 'user', 'node');
  assert.strictEqual(denied[0], 2);
  assert.deepStrictEqual(await redis.call('CL.THROTTLE', 'node', 2, 1, 3600), [0, 3, 2, -1, 3600]);
  const pipeline = redis.pipeline();
  for (let i = 0; i < 100; i += 1) pipeline.call('CL.THROTTLE', 'node-pipelined', 9, 1, 3600);
  const limited = (await pipeline.exec()).filter(([error, reply]) => !error && reply[0] === 1);
  assert.strictEqual(limited.length, 90);
  await assert.rejects(redis.get('key'), /unknown command/);
  await redis.quit();
  console.log('good');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
