// Validates recorded traffic against the OpenAPI documents. It exits with 1 if there is a violation.
//
//   node validate.mjs --traffic FOLDER --documents FOLDER
//
// The traffic consists of files with one exchange per line, as internal/testing/traffic writes them.

import { createReadStream } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Judge, tolerances } from "./judge.mjs";

const { values: flags } = parseArgs({ options: { traffic: { type: "string" }, documents: { type: "string" } } });
if (!flags.traffic || !flags.documents) {
  console.error("usage: node validate.mjs --traffic FOLDER --documents FOLDER");
  process.exit(2);
}
const judge = await Judge.open(flags.documents);
const files = (await readdir(flags.traffic)).filter((name) => name.endsWith(".jsonl")).sort();
for (const file of files) {
  for await (const line of createInterface({ input: createReadStream(join(flags.traffic, file)), crlfDelay: Infinity })) {
    if (line.trim() !== "") await judge.judge(JSON.parse(line));
  }
}

const { counts } = judge;
console.log(`${counts.exchanges} exchanges in ${files.length} files, validated against ${judge.versions.join(", ")}:`);
console.log(`  ${counts.responses} responses and ${counts.accepted} accepted requests checked`);
console.log(`  ${counts.refused} rejected requests without a document (unknown paths, methods, api-versions), ${counts.undocumented} of ARM itself`);
for (const [code, count] of judge.tolerated) console.log(`  tolerated ${count} times: ${tolerances[code]}`);
const missing = new Map();
for (const operation of [...judge.operations].sort()) {
  const [version, name] = operation.split(" ");
  if (!judge.succeeded.has(operation)) missing.set(name, [...(missing.get(name) ?? []), version]);
}
const unseen = [...missing.values()].flat().length;
console.log(`  ${judge.operations.size - unseen} of ${judge.operations.size} operations succeeded at least once`);
for (const [name, versions] of missing) console.log(`    not seen: ${name} at ${versions.join(", ")}`);

const short = (value) => JSON.stringify(value ?? null).slice(0, 1500);
for (const [what, { count, exchange }] of [...judge.violations].sort()) {
  console.log(`\nVIOLATION, ${count} times: ${what}`);
  console.log(`  ${exchange.liveRequest.method} ${exchange.liveRequest.url} ${short(exchange.liveRequest.body)}`);
  console.log(`  ${exchange.liveResponse.statusCode} ${short(exchange.liveResponse.body)}`);
}
if (counts.exchanges === 0) console.log("\nno traffic was recorded");
else console.log(judge.violations.size === 0 ? "\nno violation" : `\n${judge.violations.size} kinds of violations`);
process.exitCode = counts.exchanges > 0 && judge.violations.size === 0 ? 0 : 1;
