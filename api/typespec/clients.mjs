// Compiles the TypeSpec program with the client model that all emitters of typed clients share. For each language and
// api-version it fails on every warning of the emitter, and on every operation whose kind, final state or result differs
// between that model and the OpenAPI document. `npm run clients` runs it. It writes no files.
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

// methodsOf yields the methods of a client and its sub-clients with the operation IDs of the documents.
function* methodsOf(client) {
  for (const method of client.methods) yield [`${client.name}_${method.name}`.toLowerCase(), method];
  for (const child of client.children ?? []) yield* methodsOf(child);
}

const nameOf = (type) => type?.name ?? "nothing";
const schemaOf = (response) => response?.schema?.$ref?.split("/").at(-1) ?? "nothing";

// disagreements returns the differences between a method and its operation in the document.
function disagreements(operation, method) {
  const found = [];
  const differ = (what, documented, modelled) => {
    if (documented !== modelled) found.push(`${what} is ${documented} in the document and ${modelled} to emitters`);
  };
  const waits = operation["x-ms-long-running-operation"] === true;
  const pages = operation["x-ms-pageable"] !== undefined;
  differ("the kind", waits ? "lro" : pages ? "paging" : "basic", method.kind);
  if (waits && method.kind === "lro") {
    differ("the final state", operation["x-ms-long-running-operation-options"]["final-state-via"], method.lroMetadata.finalStateVia);
    differ("the result", schemaOf(operation.responses["200"]), nameOf(method.lroMetadata.finalResponse?.result));
  }
  if (pages && method.kind === "paging") {
    differ("the next link", operation["x-ms-pageable"].nextLinkName, method.pagingMetadata.nextLinkSegments?.map(({ name }) => name).join("."));
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
      if (method === undefined) complaints.add(`${at}: ${operation.operationId} has no method`);
      else for (const disagreement of disagreements(operation, method)) complaints.add(`${at}: ${operation.operationId}: ${disagreement}`);
    }
  }
}
for (const complaint of complaints) console.error(complaint);
console.log(`${emitters.length} emitters' view of ${versions.length} api-versions: ${complaints.size} complaints`);
process.exitCode = complaints.size === 0 ? 0 : 1;
