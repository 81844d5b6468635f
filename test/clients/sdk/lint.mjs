// Checks the OpenAPI documents against ARM's review rules for resource providers (Azure's OpenAPI validator, LintDiff), with
// AutoRest. A violation is an error unless it is listed below with a reason.
//
//   node lint.mjs --documents FOLDER --work FOLDER

import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { autorest, use } from "./autorest.mjs";

const { values: flags } = parseArgs({ options: { documents: { type: "string" }, work: { type: "string" } } });
if (!flags.documents || !flags.work) {
  console.error("usage: node lint.mjs --documents FOLDER --work FOLDER");
  process.exit(2);
}
const documents = resolve(flags.documents);
const work = resolve(flags.work);

// The accepted violations by rule, with the reason.
const tolerated = {
  AvoidAdditionalProperties: "the operators that need an identity differ from release to release; the published contract has maps too",
  EnumInsteadOfBoolean: "advice; the published contract has booleans",
  IgnoredPropertyNextToRef: "the type of a condition is bounded where the published contract bounds it",
  PostResponseCodes: "revokeCredentials ends with 204, which the published contract does not list",
  PreviewVersionOverOneYear: "customers still speak the first api-version",
};

// The rules recognize common types by their path in Azure's repository of documents, so ours get the same layout.
await rm(work, { recursive: true, force: true });
await mkdir(work, { recursive: true });
await cp(join(documents, "common-types"), join(work, "openapi", "common-types", "resource-management"), { recursive: true });
await cp(join(documents, "..", "examples"), join(work, "examples"), { recursive: true });
const versions = (await readdir(documents)).filter((name) => /^\d{4}-\d{2}-\d{2}(-preview)?$/.test(name)).sort();
const against = new Map();
for (const version of versions) {
  const document = join(work, "openapi", version, "openapi.json");
  const text = await readFile(join(documents, version, "openapi.json"), "utf8");
  await mkdir(join(work, "openapi", version));
  await writeFile(document, text.replaceAll('"../common-types/', '"../common-types/resource-management/'));
  const output = await autorest(work, [
    "--v3",
    "--azure-validator",
    "--spectral",
    "--semantic-validator=false",
    "--model-validator=false",
    "--message-format=json",
    use("@microsoft.azure/openapi-validator"),
    `--input-file=${document}`,
  ]);
  for (const line of output.filter((line) => line.startsWith("{"))) {
    const { level, code, message, details } = JSON.parse(line);
    if (!["warning", "error", "fatal"].includes(level)) continue;
    const at = `${version}: ${[...(details?.jsonpath ?? [])].join(".")}: ${message}`;
    against.set(code, [...(against.get(code) ?? []), at]);
  }
}
for (const [rule, places] of [...against].sort()) {
  const reason = tolerated[rule];
  if (reason) console.log(`${rule}: ${places.length} times, tolerated: ${reason}`);
  else console.log(`${rule}:\n  ${places.join("\n  ")}`);
}
const rules = [...against.keys()].filter((rule) => !tolerated[rule]);
const unneeded = Object.keys(tolerated).filter((rule) => !against.has(rule));
for (const rule of unneeded) console.log(`${rule} is not broken any more`);
console.log(`${versions.length} documents held against ARM's rules: ${rules.length} broken`);
process.exitCode = rules.length + unneeded.length === 0 ? 0 : 1;
