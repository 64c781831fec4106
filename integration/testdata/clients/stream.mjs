// Reads a streamed answer of a chat API with Node's own fetch: stream.mjs URL. See stream.py.
import { randomUUID } from "node:crypto";

const [base] = process.argv.slice(2);
const id = randomUUID();
const answer = await fetch(`${base}/v1/chat/completions?id=${id}`, {
	method: "POST",
	headers: { "content-type": "application/json" },
	body: JSON.stringify({ model: "any", stream: true, messages: [{ role: "user", content: "two words" }] }),
});
if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
const words = [];
let rest = "";
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
	const lines = (rest + text).split("\n");
	rest = lines.pop();
	for (const line of lines) {
		if (!line.startsWith("data: {")) continue;
		words.push(JSON.parse(line.slice("data: ".length)).choices[0].delta.content);
		if (words.length === 1 && !(await fetch(`${base}/seen?id=${id}`)).ok) throw new Error("not told");
	}
}
console.log(...words);
