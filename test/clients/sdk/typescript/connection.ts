import type { PipelinePolicy } from "@azure/core-rest-pipeline";
import { ClientSecretCredential } from "@azure/identity";
import { RedHatOpenShiftHcpClient } from "../sdk/src/index.js";
import type { Task } from "./task.js";

// A request with its response.
interface Exchange {
  method: string;
  path: string;
  status: number;
  body: string;
  // The Retry-After of the response in milliseconds, or 0.
  retryAfter: number;
  sent: number;
  answered: number;
}

const isPoll = ({ method, path }: Exchange) => method === "GET" && path.includes("/hcpOperation");

// Timers of Node may fire up to a millisecond early, because their clock counts whole milliseconds.
const clockTick = 2;

// The clients of a task's subscription, with their recorded traffic.
export class Connection {
  readonly client: RedHatOpenShiftHcpClient;
  exchanges: Exchange[] = [];

  constructor(task: Task) {
    const { tenantId, clientId, clientSecret } = task.client;
    const identity = new ClientSecretCredential(tenantId, clientId, clientSecret, {
      authorityHost: task.arm,
      disableInstanceDiscovery: true, // the discovery endpoint of Microsoft does not know a local region
    });
    this.client = new RedHatOpenShiftHcpClient(identity, task.subscription, {
      endpoint: task.arm,
      $host: task.arm,
      credentialScopes: "https://management.azure.com/.default",
    });
    this.client.pipeline.addPolicy(this.#recorder(), { afterPhase: "Sign" });
  }

  get last(): Exchange {
    return this.exchanges.at(-1)!;
  }

  // heeded throws if a poll came sooner than the previous Retry-After, and returns the number of polls that waited. Clients poll once with the
  // request and once when they begin to wait, regardless of Retry-After. Only later polls count.
  heeded(): number {
    let waited = 0;
    this.exchanges.forEach((next, i) => {
      const before = this.exchanges[i - 1];
      if (!before || !isPoll(before) || !isPoll(next) || before.retryAfter === 0) return;
      const pause = next.sent - before.answered;
      if (pause < before.retryAfter - clockTick) {
        throw new Error(`polled ${next.path} after ${pause} ms although told to wait for ${before.retryAfter} ms`);
      }
      waited++;
    });
    return waited;
  }

  #recorder(): PipelinePolicy {
    return {
      name: "recorder",
      sendRequest: async (request, next) => {
        const sent = performance.now();
        const response = await next(request);
        this.exchanges.push({
          method: request.method,
          path: new URL(request.url).pathname,
          status: response.status,
          body: response.bodyAsText ?? "",
          retryAfter: 1000 * Number(response.headers.get("retry-after") ?? 0),
          sent,
          answered: performance.now(),
        });
        return response;
      },
    };
  }
}
