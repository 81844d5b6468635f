// Holds recorded traffic against the OpenAPI documents with oav's LiveValidator.
//
//   node validate.mjs --traffic FOLDER --documents FOLDER
//
// The traffic is files of one exchange a line (internal/traffic writes them); the documents are <api-version>/openapi.json.
// Every response to a request of the contract must be as its document says, and so must every request that was accepted;
// a request that was refused may well break the contract: that is why it was refused.

import { createReadStream } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { LiveValidator } = createRequire(import.meta.url)("oav/dist/lib/liveValidation/liveValidator.js");

const { values: flags } = parseArgs({ options: { traffic: { type: "string" }, documents: { type: "string" } } });
if (!flags.traffic || !flags.documents) {
  console.error("usage: node validate.mjs --traffic FOLDER --documents FOLDER");
  process.exit(2);
}

// Preflight is called by deployments, with an api-version of its own and no document.
const undocumented = [/\/deployments\/[^/]+\/preflight$/i];

const directory = resolve(flags.documents);
const versions = (await readdir(directory, { withFileTypes: true })).filter((e) => e.isDirectory() && e.name.includes("preview")).map((e) => e.name).sort();
const validator = new LiveValidator(
  {
    directory,
    swaggerPathsPattern: versions.map((version) => `${version}/openapi.json`),
    excludedSwaggerPathsPattern: [],
    git: { shouldClone: false },
    isArmCall: true,
    loadValidatorInBackground: false,
    loadValidatorInInitialize: true,
  },
  (message, level) => {
    if (level === "error") failures.set(message.split("\n")[0], (failures.get(message.split("\n")[0]) ?? 0) + 1);
  },
);
const failures = new Map();
await validator.initialize();
if (failures.size > 0) {
  for (const message of failures.keys()) console.error(message);
  console.error("the documents cannot be loaded");
  process.exit(2);
}

// operations are all that the documents have, as `version operationId`.
const operations = new Set();
for (const version of versions) {
  const { paths } = JSON.parse(await readFile(join(directory, version, "openapi.json"), "utf8"));
  for (const path of Object.values(paths)) {
    for (const operation of Object.values(path)) {
      if (operation.operationId) operations.add(`${version} ${operation.operationId}`);
    }
  }
}

const count = { exchanges: 0, requests: 0, responses: 0, refused: 0, undocumented: 0 };
const seen = new Set();
const violations = new Map();

function violation(where, what, exchange) {
  const key = `${where}: ${what}`;
  const entry = violations.get(key) ?? { count: 0, exchange };
  entry.count++;
  violations.set(key, entry);
}

function report(operation, side, result, exchange) {
  if (result.runtimeException) {
    violation(`${operation} ${side}`, `${result.runtimeException.code} ${result.runtimeException.message.split("\n")[0]}`, exchange);
  }
  for (const error of result.errors) {
    // The same fault at other indexes or below other names of maps is one.
    const at = error.pathsInPayload.map((path) => path.replace(/\[\d+\]/g, "[]").replace(/\['.*?'\]/g, "[*]")).join(", ");
    violation(`${operation} ${side}`, `${error.code} at ${at || "/"}: ${error.message}`, exchange);
  }
}

async function check(exchange) {
  count.exchanges++;
  const { liveRequest: request, liveResponse: response } = exchange;
  const status = Number(response.statusCode);
  const { info, error } = validator.getOperationInfo(request);
  if (error !== undefined) {
    const path = new URL(request.url).pathname;
    if (undocumented.some((pattern) => pattern.test(path))) count.undocumented++;
    else if (status >= 400 && status < 500) count.refused++;
    else violation(`${request.method} ${path}`, `is answered ${status}, but no document has it`, exchange);
    return;
  }
  const operation = `${info.apiVersion} ${info.operationId}`;
  if (status < 400) {
    seen.add(operation);
    count.requests++;
    report(operation, "request", await validator.validateLiveRequest(structuredClone(request), { includeOperationMatch: true }), exchange);
  }
  if (status >= 500) violation(operation, `is answered ${status}`, exchange);
  count.responses++;
  report(operation, `response ${status}`, await validator.validateLiveResponse(structuredClone(response), structuredClone(request)), exchange);
}

const files = (await readdir(flags.traffic)).filter((name) => name.endsWith(".jsonl")).sort();
for (const file of files) {
  for await (const line of createInterface({ input: createReadStream(join(flags.traffic, file)), crlfDelay: Infinity })) {
    if (line.trim() !== "") await check(JSON.parse(line));
  }
}

console.log(`${count.exchanges} exchanges in ${files.length} files, held against ${versions.join(", ")}:`);
console.log(`  ${count.responses} responses and ${count.requests} accepted requests checked`);
console.log(`  ${count.refused} refused that no document has (unknown paths, methods and api-versions), ${count.undocumented} preflights`);
const missing = [...operations].filter((operation) => !seen.has(operation)).sort();
console.log(`  ${operations.size - missing.length} of ${operations.size} operations seen to succeed`);
for (const operation of missing) console.log(`    not seen: ${operation}`);
for (const [key, { count: times, exchange }] of [...violations].sort()) {
  console.log(`\nVIOLATION ${times}x ${key}`);
  console.log(`  ${exchange.liveRequest.method} ${exchange.liveRequest.url}`);
  console.log(`  request  ${JSON.stringify(exchange.liveRequest.body ?? null).slice(0, 1500)}`);
  console.log(`  response ${exchange.liveResponse.statusCode} ${JSON.stringify(exchange.liveResponse.body ?? null).slice(0, 1500)}`);
}
if (count.exchanges === 0) {
  console.error("no traffic was recorded");
  process.exit(1);
}
console.log(violations.size === 0 ? "\nno violation" : `\n${violations.size} kinds of violations`);
process.exitCode = violations.size === 0 ? 0 : 1;
