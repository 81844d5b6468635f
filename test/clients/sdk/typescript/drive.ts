// Tests the unmodified typed client that is generated from our OpenAPI document of one api-version, with @azure/core-lro's
// pollers and @azure/identity. It performs the operations of a customer through ARM and asserts the result of each step, and
// that the typed result has exactly the content of the response.
//
//   node drive.js [--resume] < task.json
//
// The task contains the endpoint of ARM, the credentials and the resources to create; test/e2e writes it. NODE_EXTRA_CA_CERTS
// names the certificate authority of ARM. With --resume, the program only waits for the creation of the task's poller.

import { text } from "node:stream/consumers";
import { Day } from "./day.js";
import type { Task } from "./task.js";

const task = JSON.parse(await text(process.stdin)) as Task;
const day = new Day(task);
if (process.argv.includes("--resume")) {
  await day.finishResumed();
} else {
  for (const [name, run] of day.steps()) {
    const began = performance.now();
    try {
      await run();
    } catch (error) {
      console.log(`not ok: ${name}`);
      throw error;
    }
    console.log(`ok: ${name} (${Math.round(performance.now() - began)} ms)`);
  }
}
