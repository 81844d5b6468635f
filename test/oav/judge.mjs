// Validates exchanges between clients and the ARM API against the OpenAPI documents of all api-versions, with oav's
// LiveValidator.
//
// Every response to a request of the contract must match its document, and so must every accepted request. A rejected request
// may violate the document. Some violations of accepted requests are tolerated and counted, because the service allows them
// deliberately (see tolerances). A request that no document describes must be rejected. No resource provider's document
// describes operation statuses and results: statuses are validated against ARM's RPC, and results against the schema of the
// resource or credential that they contain.

import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { LiveValidator } = createRequire(import.meta.url)("oav/dist/lib/liveValidation/liveValidator.js");

const locations = "/subscriptions/{subscriptionId}/providers/Microsoft.RedHatOpenShift/locations/{location}";

// Requests of ARM deployments, which use their own api-version, requests that ARM itself answers, and the operations list, which
// ARM may also read at an api-version of the other service in the namespace.
const undocumented = /\/(deployments\/[^/]+\/preflight|providers\/microsoft\.redhatopenshift\/((un)?register|operations))$/i;

// tolerances maps error codes of oav to the reason why an accepted request may have that error.
export const tolerances = {
  READONLY_PROPERTY_NOT_ALLOWED_IN_REQUEST: "a read-only field was sent, for example by a client that writes back what it read; the service ignores it",
  INVALID_CONTENT_TYPE: "JSON was sent with another casing of its media type",
  OBJECT_ADDITIONAL_PROPERTIES: "a PATCH has a field that only the whole resource has, or null for an unknown field; the service merges it into the resource",
  EMPTY_OPERATOR_IDENTITY: "an operator has the empty text as its identity; as in the published service, it is ignored",
  DELETE_OF_MALFORMED_NAME: "a DELETE names a resource that cannot exist; as in the published service, the response is 204",
};

// tolerance returns the key of the tolerance for an error of an accepted request; undefined if there is none.
function tolerance({ code, pathsInPayload }, { request, response, status }, readOnly) {
  const within = (body, path) => path.split("/").slice(1).reduce((value, name) => value?.[name], body);
  const value = (path) => within(request.body, path);
  const all = (test) => pathsInPayload.length > 0 && pathsInPayload.every(test);
  // For a read-only field of a wrong type, oav reports only the type.
  if (code === "INVALID_TYPE" && all((path) => readOnly.has(path.split("/").at(-1)))) return "READONLY_PROPERTY_NOT_ALLOWED_IN_REQUEST";
  if (code === "INVALID_FORMAT" && all((path) => /\/(control|data)PlaneOperators\//.test(path) && value(path) === "")) return "EMPTY_OPERATOR_IDENTITY";
  if (code === "PATTERN" && request.method === "DELETE" && status === 204 && all((path) => path.startsWith("/path/"))) return "DELETE_OF_MALFORMED_NAME";
  if (code === "INVALID_CONTENT_TYPE" && !/^application\/json\s*(;|$)/i.test(request.headers["content-type"])) return undefined;
  if (code === "OBJECT_ADDITIONAL_PROPERTIES") {
    const merged = (path) => value(path) === null || within(response.body, path) !== undefined;
    return request.method === "PATCH" && all(merged) ? code : undefined;
  }
  return tolerances[code] && code;
}

export class Judge {
  counts = { exchanges: 0, responses: 0, accepted: 0, refused: 0, undocumented: 0 };
  // tolerated counts the uses of each tolerance.
  tolerated = new Map();
  // operations has all operations of the documents as "version operationId"; succeeded has those that succeeded.
  operations = new Set();
  succeeded = new Set();
  // violations maps each violation to its count and its first exchange.
  violations = new Map();
  versions = [];
  #validator;
  // readOnly has the names of the read-only properties.
  #readOnly = new Set();

  // open reads <folder>/<api-version>/openapi.json of all api-versions.
  static async open(folder) {
    const judge = new Judge();
    const directory = await mkdtemp(join(tmpdir(), "hcpmesh-oav-"));
    try {
      await cp(folder, directory, { recursive: true });
      await judge.#load(directory);
    } finally {
      await rm(directory, { recursive: true });
    }
    return judge;
  }

  async #load(directory) {
    for (const entry of await readdir(directory, { withFileTypes: true })) {
      if (entry.isDirectory() && /^\d{4}-/.test(entry.name)) this.versions.push(entry.name);
    }
    this.versions.sort();
    for (const version of this.versions) {
      const document = JSON.parse(await readFile(join(directory, version, "openapi.json"), "utf8"));
      for (const { properties = {} } of Object.values(document.definitions)) {
        for (const [name, property] of Object.entries(properties)) if (property.readOnly) this.#readOnly.add(name);
      }
      for (const path of Object.values(document.paths)) {
        for (const { operationId } of Object.values(path)) {
          if (operationId) this.operations.add(`${version} ${operationId}`);
        }
      }
      await writeFile(join(directory, version, "operations.json"), JSON.stringify(operationsDocument(document)));
    }
    const problems = [];
    this.#validator = new LiveValidator(
      {
        directory,
        swaggerPathsPattern: this.versions.flatMap((version) => [`${version}/openapi.json`, `${version}/operations.json`]),
        excludedSwaggerPathsPattern: [],
        git: { shouldClone: false },
        isArmCall: true,
        loadValidatorInBackground: false,
        loadValidatorInInitialize: true,
      },
      (message, level) => (level === "error" || level === "warn") && problems.push(message),
    );
    await this.#validator.initialize();
    if (this.versions.length === 0 || problems.length > 0) {
      throw new Error(`loading the documents: ${problems.join("\n") || "no documents"}`);
    }
  }

  // judge validates one exchange in the form that internal/testing/traffic writes.
  async judge(exchange) {
    this.counts.exchanges++;
    const { liveResponse: response } = exchange;
    // The SDK for JavaScript begins a path with two slashes. ARM accepts that and forwards one.
    const request = { ...exchange.liveRequest, url: exchange.liveRequest.url.replace(/^(https:\/\/[^/]+)\/+/, "$1/") };
    const status = Number(response.statusCode);
    const { pathname, searchParams } = new URL(request.url);
    const { info, error } = this.#validator.getOperationInfo(request);
    if (error !== undefined) {
      if (undocumented.test(pathname)) this.counts.undocumented++;
      else if (status >= 400 && status < 500) this.counts.refused++;
      else this.#violation(`${request.method} ${pathname}`, `response is ${status}, but no document describes the request`, exchange);
      return;
    }
    const operation = `${info.apiVersion} ${info.operationId}`;
    // 503 with Retry-After means that a dependency is unavailable.
    const unavailable = status === 503 && response.headers["retry-after"] !== undefined;
    // The result of a failed or canceled operation is its error, as in the published service.
    const failed = status === 500 && info.operationId === "OperationResults_Get" && response.body?.error?.code !== "InternalServerError";
    if (status >= 500 && !unavailable && !failed) this.#violation(operation, `response is ${status}`, exchange);
    if (status < 400) {
      this.succeeded.add(operation);
      this.counts.accepted++;
      const result = await this.#validator.validateLiveRequest(structuredClone(request));
      this.#report(`${operation} request`, { ...result, errors: this.#tolerate(result.errors, { request, response, status }) }, exchange);
    }
    this.counts.responses++;
    this.#report(`${operation} response ${status}`, await this.#validateResponse(response, request), exchange);
    if (info.operationId === "OperationResults_Get" && (status === 200 || status === 201)) {
      const { body } = response;
      const version = searchParams.get("api-version");
      const as = body?.id
        ? { method: "GET", url: `https://management.azure.com${body.id}?api-version=${version}` }
        : { method: "POST", url: `https://management.azure.com${someCluster}/requestAdminCredential?api-version=${version}` };
      this.#report(`${operation} result`, await this.#validateResponse({ statusCode: "200", headers: response.headers, body }, as), exchange);
    }
  }

  // tolerate counts the tolerated errors and returns the others. A field that the service ignores may have any value.
  #tolerate(errors, exchange) {
    const ignored = new Set();
    const of = (error) => tolerance(error, exchange, this.#readOnly);
    for (const error of errors) {
      const key = of(error);
      if (!key) continue;
      this.tolerated.set(key, (this.tolerated.get(key) ?? 0) + 1);
      error.pathsInPayload.forEach((path) => ignored.add(path));
    }
    return errors.filter((error) => !of(error) && !error.pathsInPayload.some((path) => ignored.has(path)));
  }

  #validateResponse(response, request) {
    return this.#validator.validateLiveResponse(structuredClone(response), structuredClone(request));
  }

  #report(where, result, exchange) {
    if (result.runtimeException) {
      const { code, message } = result.runtimeException;
      this.#violation(where, `${code} ${message.split("\n")[0]}`, exchange);
    }
    for (const error of result.errors) {
      // The same error at other indexes or map keys counts as one violation.
      const at = error.pathsInPayload.map((path) => path.replace(/\[\d+\]/g, "[]").replace(/\['.*?'\]/g, "[*]")).join(", ");
      this.#violation(where, `${error.code} at ${at || "the top"}: ${error.message}`, exchange);
    }
  }

  #violation(where, what, exchange) {
    const key = `${where}: ${what}`;
    const entry = this.violations.get(key) ?? { count: 0, exchange };
    entry.count++;
    this.violations.set(key, entry);
  }
}

const someCluster = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c";

// operationsDocument returns a document that describes operation statuses and results for an api-version.
function operationsDocument(document) {
  const errorResponse = Object.values(document.paths)[0].get.responses.default.schema.$ref;
  const text = (name, where) => ({ name, in: where, required: true, type: "string" });
  const get = (operationId, responses) => ({
    get: {
      operationId,
      parameters: [text("subscriptionId", "path"), text("location", "path"), text("operationId", "path"), text("api-version", "query")],
      responses: { ...responses, default: { description: "An error", schema: { $ref: errorResponse } } },
    },
  });
  const resource = { description: "The resource or credential", schema: { type: "object", additionalProperties: true } };
  return {
    swagger: "2.0",
    info: { title: "Operations", version: document.info.version },
    host: document.host,
    schemes: ["https"],
    consumes: ["application/json"],
    produces: ["application/json"],
    paths: {
      [`${locations}/hcpOperationStatuses/{operationId}`]: get("OperationStatuses_Get", {
        200: { description: "The status of the operation", schema: { $ref: "#/definitions/OperationStatus" } },
      }),
      [`${locations}/hcpOperationResults/{operationId}`]: get("OperationResults_Get", {
        200: resource,
        201: resource,
        202: { description: "The operation is in progress" },
        204: { description: "The operation has succeeded without a result" },
      }),
    },
    // The body of Azure-AsyncOperation in ARM's RPC.
    definitions: {
      OperationStatus: {
        type: "object",
        required: ["id", "name", "status", "startTime"],
        additionalProperties: false,
        properties: {
          id: { type: "string" },
          name: { type: "string" },
          status: { type: "string", enum: ["Accepted", "Provisioning", "Updating", "Deleting", "AwaitingSecret", "Succeeded", "Failed", "Canceled"] },
          startTime: { type: "string", format: "date-time" },
          endTime: { type: "string", format: "date-time" },
          percentComplete: { type: "number", minimum: 0, maximum: 100 },
          properties: { type: "object", additionalProperties: true },
          error: { $ref: errorResponse.replace(/ErrorResponse$/, "ErrorDetail") },
        },
      },
    },
  };
}
