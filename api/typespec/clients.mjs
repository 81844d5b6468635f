// Looks at the TypeSpec program as the emitters of typed clients do, which share one model of it: for each of their languages
// and api-versions it fails on what they would warn of, and on an operation whose end they would look for elsewhere, or read
// as something else, than the OpenAPI document says. `npm run clients` runs it; it writes nothing.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createSdkContext } from "@azure-tools/typespec-client-generator-core";
import { compile, formatDiagnostic, NodeHost, resolveCompilerOptions } from "@typespec/compiler";

const emitters = ["typespec-ts", "typespec-go", "typespec-python", "typespec-java", "http-client-csharp-mgmt"];
const typespec = import.meta.dirname;

const [config, faults] = await resolveCompilerOptions(NodeHost, { cwd: typespec, entrypoint: join(typespec, "main.tsp") });
const program = await compile(NodeHost, join(typespec, "main.tsp"), {
  ...config,
  noEmit: true,
  linterRuleSet: {
    extends: [...(config.linterRuleSet?.extends ?? []), "@azure-tools/typespec-client-generator-core/best-practices:csharp"],
  },
});
const complaints = new Set([...faults, ...program.diagnostics].map(formatDiagnostic));

// methodsOf are the methods of a package by the documents' operation ids, those of its sub-clients too.
function* methodsOf(client) {
  for (const method of client.methods) yield [`${client.name}_${method.name}`.toLowerCase(), method];
  for (const child of client.children ?? []) yield* methodsOf(child);
}

const nameOf = (type) => type?.name ?? "nothing";
const schemaOf = (response) => response?.schema?.$ref?.split("/").at(-1) ?? "nothing";

// disagreements are what a method and its operation in the document tell differently.
function disagreements(operation, method) {
  const found = [];
  const differ = (what, documented, modelled) => {
    if (documented !== modelled) found.push(`${what} is ${documented} in the document and ${modelled} to emitters`);
  };
  const waits = operation["x-ms-long-running-operation"] === true;
  const pages = operation["x-ms-pageable"] !== undefined;
  differ("its kind", waits ? "lro" : pages ? "paging" : "basic", method.kind);
  if (waits && method.kind === "lro") {
    differ("where its end is", operation["x-ms-long-running-operation-options"]["final-state-via"], method.lroMetadata.finalStateVia);
    differ("its result", schemaOf(operation.responses["200"]), nameOf(method.lroMetadata.finalResponse?.result));
  }
  if (pages && method.kind === "paging") {
    differ("its next link", operation["x-ms-pageable"].nextLinkName, method.pagingMetadata.nextLinkSegments?.map(({ name }) => name).join("."));
  }
  return found;
}

const versions = readdirSync(join(typespec, "..", "openapi")).filter((name) => /^\d{4}-\d{2}-\d{2}(-preview)?$/.test(name));
for (const emitter of emitters) {
  for (const version of versions) {
    const document = JSON.parse(readFileSync(join(typespec, "..", "openapi", version, "openapi.json"), "utf8"));
    const context = await createSdkContext({ program, options: { "api-version": version }, emitterOutputDir: typespec }, `@azure-tools/${emitter}`);
    const at = `${emitter} at ${version}`;
    for (const diagnostic of context.diagnostics) complaints.add(`${at}: ${formatDiagnostic(diagnostic)}`);
    const methods = new Map(context.sdkPackage.clients.flatMap((client) => [...methodsOf(client)]));
    for (const operation of Object.values(document.paths).flatMap(Object.values)) {
      const method = methods.get(operation.operationId.toLowerCase());
      if (method === undefined) complaints.add(`${at}: ${operation.operationId} is no method`);
      else for (const disagreement of disagreements(operation, method)) complaints.add(`${at}: of ${operation.operationId}, ${disagreement}`);
    }
  }
}
for (const complaint of complaints) console.error(complaint);
console.log(`${emitters.length} emitters' view of ${versions.length} api-versions: ${complaints.size} complaints`);
process.exitCode = complaints.size === 0 ? 0 : 1;
