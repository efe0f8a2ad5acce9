const Redis = require("ioredis");

async function main() {
  const client = new Redis(6380);
  const [code, remaining, retryAfterMs] = await client.call("WEIR.CHECK", "shop", 1, "login", "ann");
  console.log(code === 1 ? `welcome, ${remaining} more attempts` : `try again in ${retryAfterMs} ms`);
  client.disconnect();
}

main();
