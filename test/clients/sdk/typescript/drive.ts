// A customer with the typed client that is generated from our OpenAPI document of one api-version, unmodified: what
// @azure/arm-redhatopenshifthcp is made of, with @azure/core-lro's pollers and @azure/identity. It lives a day of a region
// through ARM, asserts what it sees at each step, and that nothing of an answer is lost or missing in the typed result.
//
//   node drive.js [--resume] < task.json
//
// The task says where ARM is, who the customer is and what to make; test/e2e writes it. NODE_EXTRA_CA_CERTS names the
// authority of ARM's certificate. --resume waits for the creation that the task's poller follows, and does nothing else.

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
