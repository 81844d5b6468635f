// Runs AutoRest from node_modules with the installed extensions, so that it downloads nothing.

import { spawn } from "node:child_process";
import { join } from "node:path";

export const modules = join(import.meta.dirname, "node_modules");

export const use = (extension) => `--use=${join(modules, ...extension.split("/"))}`;

// run runs a program and returns its output. It throws the output if the program fails.
export async function run(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  const code = await new Promise((done, failed) => child.on("error", failed).on("close", done));
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}\n${output}`);
  return output;
}

// autorest runs AutoRest in a folder, which also holds its state, and returns its output lines.
export async function autorest(folder, args) {
  const program = join(modules, "@autorest", "core", "entrypoints", "app.js");
  const options = { cwd: folder, env: { ...process.env, AUTOREST_HOME: folder } };
  return (await run(process.execPath, [program, "--openapi-type=arm", ...args], options)).split("\n");
}
