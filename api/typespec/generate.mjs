// Writes ../openapi/<api-version>/openapi.json from the TypeSpec sources of this folder, with the ARM rules as errors. Then
// it writes ../openapi/SHA256SUMS, with which a Go test checks, without Node, that the documents match the sources.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";

const typespec = import.meta.dirname;
const api = join(typespec, "..");
const openapi = join(api, "openapi");
const examples = join(api, "examples");
const isVersion = (name) => /^\d{4}-\d{2}-\d{2}(-preview)?$/.test(name);

function files(dir, accept) {
  return readdirSync(dir, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => accept(relative(dir, path).split(sep)));
}

for (const name of readdirSync(openapi).filter(isVersion)) {
  rmSync(join(openapi, name), { recursive: true }); // remove the documents of versions that the sources no longer contain
}
const compiler = join(typespec, "node_modules", "@typespec", "compiler", "cmd", "tsp.js");
const { status } = spawnSync(process.execPath, [compiler, "compile", typespec], { stdio: "inherit" });
if (status !== 0) process.exit(status ?? 1);

const sums = [
  ...files(typespec, ([first]) => first !== "node_modules"),
  ...files(examples, ([first, second]) => isVersion(first) && second.endsWith(".json")),
  ...files(openapi, ([first, second]) => (isVersion(first) || first === "common-types") && second !== undefined),
].map((path) => [relative(api, path).split(sep).join("/"), createHash("sha256").update(readFileSync(path)).digest("hex")]);
sums.sort(([a], [b]) => (a < b ? -1 : 1));
writeFileSync(join(openapi, "SHA256SUMS"), sums.map(([path, sum]) => `${sum}  ${path}\n`).join(""));
