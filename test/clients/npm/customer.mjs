// Adds to the published client the requests that it has no method for, sent through its pipeline, and actions with core-lro's
// poller.

import assert from "node:assert/strict";
import { createHttpPoller } from "@azure/core-lro";
import { createHttpHeaders, createPipelineRequest, RestError } from "@azure/core-rest-pipeline";

export class Customer {
  #client;
  #task;

  constructor(client, task) {
    this.#client = client;
    this.#task = task;
  }

  get provider() {
    return `/subscriptions/${this.#task.subscription}/providers/Microsoft.RedHatOpenShift`;
  }

  get group() {
    return `/subscriptions/${this.#task.subscription}/resourceGroups/${this.#task.resourceGroup}`;
  }

  // send sends a request through the client's pipeline and returns the response, its body parsed.
  async send(method, path, body) {
    const url = new URL(path, this.#task.arm);
    if (!url.searchParams.has("api-version")) url.searchParams.set("api-version", this.#task.apiVersion);
    const request = createPipelineRequest({ method, url: url.href, headers: createHttpHeaders({ accept: "application/json" }) });
    if (body !== undefined) {
      request.headers.set("content-type", "application/json");
      request.body = JSON.stringify(body);
    }
    const response = await this.#client.sendRequest(request);
    if (response.status >= 400) {
      throw new RestError(`${method} ${path}: ${response.status} ${response.bodyAsText}`, { statusCode: response.status, request, response });
    }
    return { ...response, parsedBody: response.bodyAsText ? JSON.parse(response.bodyAsText) : undefined };
  }

  // list reads all pages of a list.
  async list(path) {
    const all = [];
    for (let next = path; next; ) {
      const { status, parsedBody } = await this.send("GET", next);
      assert.equal(status, 200);
      all.push(...parsedBody.value);
      next = parsedBody.nextLink;
    }
    return all;
  }

  // act posts an action and returns core-lro's poller for it.
  act(path, body) {
    const exchange = async (method, at, content) => {
      const response = await this.send(method, at, content);
      return {
        flatResponse: response.parsedBody,
        rawResponse: { statusCode: response.status, headers: response.headers.toJSON(), body: response.parsedBody },
      };
    };
    return createHttpPoller(
      {
        requestMethod: "POST",
        requestPath: path,
        sendInitialRequest: () => exchange("POST", path, body),
        sendPollRequest: (at) => exchange("GET", at),
      },
      { intervalInMs: 500, resourceLocationConfig: "location" },
    );
  }
}
