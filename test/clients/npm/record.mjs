// Records the traffic between the client and ARM without tokens and credentials, as internal/testing/traffic does in Go.

import { appendFileSync } from "node:fs";
import { join } from "node:path";

export function recordingPolicy(folder) {
  const file = join(folder, `npm-${process.pid}.jsonl`);
  return {
    name: "hcpmesh-record",
    async sendRequest(request, next) {
      const response = await next(request);
      const { pathname, search } = new URL(request.url);
      if (/\/providers\/microsoft\.redhatopenshift\//i.test(pathname)) {
        const { authorization: _, ...headers } = request.headers.toJSON();
        const exchange = {
          liveRequest: { method: request.method, url: `https://management.azure.com${pathname}${search}`, headers, body: content(request.body) },
          liveResponse: { statusCode: String(response.status), headers: response.headers.toJSON(), body: content(response.bodyAsText) },
        };
        appendFileSync(file, JSON.stringify(exchange) + "\n");
      }
      return response;
    },
  };
}

function content(body) {
  if (!body) return undefined;
  try {
    return JSON.parse(body, (name, value) => (name === "kubeconfig" ? "left out" : value));
  } catch {
    return body;
  }
}
