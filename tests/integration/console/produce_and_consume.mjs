// A program in a language without a client of ours: sends ten orders and handles them, by HTTP alone.
const base = process.argv[2] + "/api/v1/topics/order.node";

async function post(path, body) {
  const answer = await fetch(base + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(JSON.stringify(await answer.json()));
  return answer.json();
}

const messages = Array.from({ length: 10 }, (_, at) => ({ json: { order: at }, key: `o-${at}` }));
const sent = await post("/messages", { messages });
const handled = [];
while (handled.length < sent.receipts.length) {
  const pulled = await post("/groups/node/pull", { max: 4, wait_ms: 5000 });
  handled.push(...pulled.messages.map((message) => message.json.order));
  const settled = await post("/groups/node/settle", { ack: pulled.messages.map((m) => m.ack_id) });
  if (settled.late) throw new Error("late");
}
console.log(JSON.stringify(handled.sort((a, b) => a - b)));
