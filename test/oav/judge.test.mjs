// Tries the judge on what it must let pass and what it must find: a judge that finds nothing proves nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Judge } from "./judge.mjs";

const documents = process.env.DOCUMENTS ?? fileURLToPath(new URL("../../api/openapi", import.meta.url));
const version = "2026-09-01-preview";
const subscription = "/subscriptions/11111111-1111-1111-1111-111111111111";
const provider = "/providers/Microsoft.RedHatOpenShift";
const pool = `${subscription}/resourceGroups/g${provider}/hcpOpenShiftClusters/c/nodePools/p`;
const place = `${subscription}${provider}/locations/westus3`;

const exchange = (method, path, body, statusCode, answer, headers = {}, type = "application/json") => ({
  liveRequest: { method, url: `https://management.azure.com${path}?api-version=${version}`, headers: { "content-type": type }, ...(body && { body }) },
  liveResponse: { statusCode: String(statusCode), headers: { "content-type": "application/json", ...headers }, ...(answer && { body: answer }) },
});

const sent = (properties = {}) => ({ location: "westus3", properties: { platform: { vmSize: "Standard_D8s_v3" }, replicas: 2, ...properties } });
const shown = (properties = {}) => ({
  id: pool,
  name: "p",
  type: "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/nodePools",
  ...sent({ provisioningState: "Succeeded", ...properties }),
});
const asynchronous = { "azure-asyncoperation": `https://management.azure.com${place}/hcpOperationStatuses/x?api-version=${version}` };
const status = (fields = {}) => ({ id: `${place}/hcpOperationStatuses/x`, name: "x", status: "Succeeded", startTime: "2026-03-02T10:00:00Z", ...fields });
const refusal = { error: { code: "InvalidRequestContent", message: "no" } };

const cases = {
  "a resource is read": [true, exchange("GET", pool, null, 200, shown())],
  "a resource is created": [true, exchange("PUT", pool, sent(), 201, shown({ provisioningState: "Accepted" }), asynchronous)],
  "a wrong request is refused": [true, exchange("PUT", pool, sent({ replicas: "two" }), 400, refusal)],
  "an unknown path is refused": [true, exchange("GET", `${pool}/friends`, null, 404, refusal)],
  "a read-only field is sent": [true, exchange("PUT", pool, sent({ provisioningState: "Failed" }), 200, shown())],
  "a field that only the whole resource has is patched": [true, exchange("PATCH", pool, { properties: { platform: { vmSize: "x" } } }, 202, shown(), asynchronous)],
  "null for an unknown field is patched": [true, exchange("PATCH", pool, { properties: { colour: null } }, 202, shown(), asynchronous)],
  "a path begins with two slashes": [true, exchange("GET", `/${pool}`, null, 200, shown())],
  "ARM registers the provider": [true, exchange("POST", `${subscription}${provider}/register`, null, 200, {})],
  "a dependency does not answer": [true, exchange("GET", pool, null, 503, refusal, { "retry-after": "5" })],
  "an external authentication waits for a secret": [true, exchange("GET", `${place}/hcpOperationStatuses/x`, null, 200, status({ status: "AwaitingSecret" }))],
  "a status is read": [true, exchange("GET", `${place}/hcpOperationStatuses/x`, null, 200, status())],
  "a result is read": [true, exchange("GET", `${place}/hcpOperationResults/x`, null, 200, shown())],

  "the result of a failed operation is read": [true, exchange("GET", `${place}/hcpOperationResults/x`, null, 500, refusal)],
  "operations are read at another version": [true, exchange("GET", `${provider}/operations`, null, 200, { value: [] })],
  "a resource with a malformed name is deleted": [true, exchange("DELETE", `${pool}_`, null, 204, null)],

  "an unknown field is accepted": [false, exchange("PUT", pool, sent({ colour: "blue" }), 200, shown(), asynchronous)],
  "an unknown field is patched": [false, exchange("PATCH", pool, { properties: { colour: "blue" } }, 202, shown(), asynchronous)],
  "a merge patch is accepted": [false, exchange("PATCH", pool, sent(), 202, shown(), asynchronous, "application/merge-patch+json")],
  "a malformed name is accepted": [false, exchange("DELETE", `${pool}_`, null, 202, null, asynchronous)],
  "the result fails": [false, exchange("GET", `${place}/hcpOperationResults/x`, null, 500, { error: { code: "InternalServerError", message: "no" } })],
  "a wrong request is accepted": [false, exchange("PUT", pool, sent({ replicas: "two" }), 201, shown(), asynchronous)],
  "a required field is missing": [false, exchange("GET", pool, null, 200, shown({ platform: {} }))],
  "a field has the wrong type": [false, exchange("GET", pool, null, 200, shown({ replicas: "two" }))],
  "a field is unknown": [false, exchange("GET", pool, null, 200, shown({ colour: "blue" }))],
  "a number is out of range": [false, exchange("GET", pool, null, 200, shown({ platform: { vmSize: "Standard_D8s_v3", osDisk: { sizeGiB: 1 } } }))],
  "a status code is not documented": [false, exchange("GET", pool, null, 206, shown())],
  "an error has another form": [false, exchange("GET", pool, null, 404, { problem: "gone" })],
  "it is not said when to try again": [false, exchange("GET", pool, null, 503, refusal)],
  "the server failed": [false, exchange("GET", pool, null, 500, refusal)],
  "an unknown path is answered": [false, exchange("GET", `${pool}/friends`, null, 200, {})],
  "a status has another form": [false, exchange("GET", `${place}/hcpOperationStatuses/x`, null, 200, status({ status: "Running late" }))],
  "a result holds a wrong resource": [false, exchange("GET", `${place}/hcpOperationResults/x`, null, 200, shown({ replicas: "two" }))],
  "a result holds half a credential": [false, exchange("GET", `${place}/hcpOperationResults/x`, null, 200, { kubeconfig: 5 })],
};

// Operators without an identity are ignored; other texts that are no ARM IDs are not.
for (const [id, right] of [["", true], ["x", false]]) {
  test(`an operator has the identity "${id}"`, async () => {
    const judge = await Judge.open(documents);
    const platform = { operatorsAuthentication: { userAssignedIdentities: { controlPlaneOperators: { a: id } } } };
    await judge.judge(exchange("PATCH", pool.replace(/\/nodePools.*/, ""), { properties: { platform } }, 202, null, asynchronous));
    const found = [...judge.violations.keys()].filter((key) => key.includes(" request: "));
    assert.equal(found.length === 0, right, found.join("\n") || "no violation found");
  });
}

for (const [reason, [right, input]] of Object.entries(cases)) {
  test(reason, async () => {
    const judge = await Judge.open(documents);
    await judge.judge(input);
    assert.equal(judge.violations.size === 0, right, [...judge.violations.keys()].join("\n") || "no violation found");
  });
}
