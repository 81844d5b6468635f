// Generates typed clients from our OpenAPI documents with the generators of the published clients, and builds the programs that
// use them in a region: one for each language and api-version.
//
//   node generate.mjs --documents FOLDER --into FOLDER [--only LANGUAGE/API-VERSION]
//
// AutoRest runs from node_modules with the installed generators and downloads nothing. A warning is an error unless it is listed
// below with a reason. The last file that is written is drivers.json, with the command of each program.

import { createHash } from "node:crypto";
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { autorest, modules, run, use } from "./autorest.mjs";

const { values: flags } = parseArgs({
  options: { documents: { type: "string" }, into: { type: "string" }, only: { type: "string" } },
});
if (!flags.documents || !flags.into) {
  console.error("usage: node generate.mjs --documents FOLDER --into FOLDER [--only LANGUAGE/API-VERSION]");
  process.exit(2);
}
const here = import.meta.dirname;
const documents = resolve(flags.documents);
const into = resolve(flags.into);

// The ignored warnings of the generators, with the reason.
const tolerated = [
  { line: /IgnoredPropertyNextToRef .*\(components > schemas > Condition > properties > type\)/, reason: "the published contract has the bound there too; only servers apply it" },
  { line: /PreCheck\/CheckDuplicateSchemas \| Checking/, reason: "an informational message" },
  { line: /UsingTemporaryFlag/, reason: "about the Go generator's own settings" },
  { line: /seal-single-value-enum-by-default is a temporary flag/, reason: "about the TypeScript generator's own settings" },
  { line: /SecurityDefinedSpecAndConfig/, reason: "--azure-arm equals the definition in the document" },
];

const languages = {
  go: {
    options: (folder) => [
      "--go",
      use("@autorest/go"),
      "--module=hcpmesh.test/armredhatopenshifthcp",
      "--generate-fakes=false",
      `--output-folder=${join(folder, "armredhatopenshifthcp")}`,
    ],
    build: buildGo,
  },
  typescript: {
    options: (folder) => [
      "--typescript",
      use("@autorest/typescript"),
      "--package-name=@azure/arm-redhatopenshifthcp",
      "--package-version=1.0.0-beta.1",
      "--generate-metadata=false",
      "--add-credentials",
      `--output-folder=${join(folder, "sdk")}`,
    ],
    build: buildTypeScript,
  },
};

// generate generates a client unless the existing one was generated from the same input.
async function generate(version, folder, own) {
  const args = [
    `--input-file=${join(documents, version, "openapi.json")}`,
    "--azure-arm",
    "--title=RedHatOpenShiftHcpClient",
    "--license-header=MICROSOFT_MIT_NO_VERSION",
    "--clear-output-folder",
    use("@autorest/modelerfour"),
    ...own,
  ];
  const sources = createHash("sha256").update(JSON.stringify(args));
  const types = (await readdir(join(documents, "common-types"), { recursive: true })).filter((name) => name.endsWith(".json")).sort();
  for (const file of [join(version, "openapi.json"), ...types.map((name) => join("common-types", name))]) {
    sources.update(await readFile(join(documents, file)));
  }
  const digest = sources.update(await readFile(join(here, "package-lock.json"))).digest("hex");
  const made = join(folder, "made-from");
  if ((await readFile(made, "utf8").catch(() => "")) === digest) return;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const output = await autorest(folder, args);
  const complaints = output.filter((line) => /^(warning|error|fatal)\b/i.test(line) && !tolerated.some(({ line: pattern }) => pattern.test(line)));
  if (complaints.length > 0) throw new Error(`AutoRest complains of ${version}:\n${complaints.join("\n")}`);
  await writeFile(made, digest);
}

async function buildTypeScript(version, folder) {
  await cp(join(here, "typescript"), join(folder, "drive"), { recursive: true, filter: (path) => !path.includes("versions") });
  await cp(join(here, "typescript", "versions", `${version}.ts`), join(folder, "drive", "version.ts"));
  await writeFile(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const compilerOptions = {
    target: "es2023",
    module: "nodenext",
    strict: true,
    skipLibCheck: true,
    noUnusedLocals: true,
    types: ["node"],
    rootDir: folder,
    outDir: join(folder, "out"),
  };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["drive", "sdk"] }));
  await run(process.execPath, [join(modules, "typescript", "bin", "tsc"), "--project", folder]);
  return [process.execPath, join(folder, "out", "drive", "drive.js")];
}

async function buildGo(version, folder) {
  const program = join(folder, "drive");
  const goMod = await readFile(join(here, "go.mod"), "utf8");
  const client = join(folder, "armredhatopenshifthcp");
  await writeFile(join(folder, "drive.mod"), goMod.replace(/^(replace \S+ =>) .*$/m, `$1 ${client}`));
  await cp(join(here, "go.sum"), join(folder, "drive.sum"));
  const tags = `v${version.replaceAll("-", "")}`;
  const options = { cwd: here, env: { ...process.env, GOFLAGS: "-mod=mod" } };
  for (const args of [["build", "-o", program], ["vet"], ["test"]]) {
    await run("go", [args[0], `-modfile=${join(folder, "drive.mod")}`, `-tags=${tags}`, ...args.slice(1), "./go"], options);
  }
  return [program, "-models", client];
}

const versions = (await readdir(documents)).filter((name) => /^\d{4}-\d{2}-\d{2}(-preview)?$/.test(name)).sort();
await mkdir(into, { recursive: true });
await rm(join(into, "node_modules"), { force: true });
await symlink(modules, join(into, "node_modules"));
const drivers = {};
for (const version of versions) {
  await Promise.all(
    Object.entries(languages).map(async ([language, { options, build }]) => {
      if (flags.only && flags.only !== `${language}/${version}`) return;
      const folder = join(into, language, version);
      await generate(version, folder, options(folder));
      const command = await build(version, folder);
      (drivers[language] ??= {})[version] = command;
      console.log(`${language} at ${version}: generated and built`);
    }),
  );
}
await writeFile(join(into, "drivers.json"), JSON.stringify(drivers, null, 2) + "\n");
