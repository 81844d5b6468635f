// A customer with the published Azure SDK for JavaScript: @azure/arm-resources with @azure/core-lro's pollers and
// @azure/identity, unmodified. It runs the life cycle of a cluster through ARM and asserts the result of each step.
//
//   node drive.mjs < task.json
//
// The task contains the endpoint of ARM, the credentials and the resources to create; test/e2e writes it. NODE_EXTRA_CA_CERTS
// names the certificate authority of ARM.

import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { ResourceManagementClient } from "@azure/arm-resources";
import { ClientSecretCredential } from "@azure/identity";
import { Customer } from "./customer.mjs";
import { askHostedCluster } from "./hosted.mjs";
import { recordingPolicy } from "./record.mjs";

const task = JSON.parse(await text(process.stdin));
const { cluster, nodePool, externalAuth, credential } = task;

const identity = new ClientSecretCredential(task.client.tenantId, task.client.clientId, task.client.clientSecret, {
  authorityHost: task.arm,
  disableInstanceDiscovery: true, // the discovery endpoint of Microsoft does not know a local region
});
const client = new ResourceManagementClient(identity, task.subscription, {
  endpoint: task.arm,
  $host: task.arm,
  credentialScopes: "https://management.azure.com/.default",
});
if (process.env.HCPMESH_TRAFFIC_DIR) {
  client.pipeline.addPolicy(recordingPolicy(process.env.HCPMESH_TRAFFIC_DIR), { afterPhase: "Sign" });
}
const customer = new Customer(client, task);
const { resources } = client;
const often = { updateIntervalInMs: 500 };

async function step(name, run) {
  const began = performance.now();
  try {
    await run();
  } catch (error) {
    console.log(`not ok: ${name}`);
    throw error;
  }
  console.log(`ok: ${name} (${Math.round(performance.now() - began)} ms)`);
}

// refusal returns the error that a promise is rejected with.
async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("the request was not rejected");
}

const names = async (pages) => {
  const found = [];
  for await (const { name } of pages) found.push(name);
  return found.sort();
};

await step("a subscription, registered, and a resource group", async () => {
  await customer.send("PUT", `/subscriptions/${task.subscription}?api-version=2022-12-01`, { displayName: "npm" });
  await client.providers.register("Microsoft.RedHatOpenShift");
  await client.resourceGroups.createOrUpdate(task.resourceGroup, { location: task.location });
});

await step("what the provider and the region offer", async () => {
  assert.ok((await customer.list("/providers/Microsoft.RedHatOpenShift/operations")).length > 0);
  for (const kind of ["hcpOpenShiftVersions", "hcpOperatorIdentityRoleSets"]) {
    const offers = await customer.list(`${customer.provider}/locations/${task.location}/${kind}`);
    assert.ok(offers.length > 0, `${kind} are offered`);
    assert.deepEqual((await customer.send("GET", offers[0].id)).parsedBody, offers[0]);
  }
});

await step("a cluster that is not there is not found", async () => {
  const error = await refusal(resources.getById(cluster.id, task.apiVersion));
  assert.equal(error.statusCode, 404);
  assert.equal(error.code, "ResourceNotFound");
});

await step("a cluster with a fault is refused, with the field", async () => {
  const body = structuredClone(cluster.body);
  body.properties.network = { hostPrefix: 30 };
  const error = await refusal(resources.beginCreateOrUpdateByIdAndWait(cluster.id, task.apiVersion, body, often));
  assert.equal(error.statusCode, 400);
  assert.equal(error.details.error.target, "properties.network.hostPrefix");
});

await step("create a cluster", async () => {
  const created = await resources.beginCreateOrUpdateByIdAndWait(cluster.id, task.apiVersion, cluster.body, often);
  assert.equal(created.id, cluster.id);
  assert.equal(created.properties.provisioningState, "Succeeded");
});

await step("read it", async () => {
  const got = await resources.getById(cluster.id, task.apiVersion);
  assert.equal(got.name, cluster.name);
  assert.equal(got.location, task.location);
  assert.deepEqual(got.tags, cluster.body.tags);
  assert.equal(got.properties.version.id, cluster.body.properties.version.id);
  assert.match(got.properties.api.url, /^https:/);
});

await step("create a node pool", async () => {
  const poller = await resources.beginCreateOrUpdateById(nodePool.id, task.apiVersion, nodePool.body, often);
  assert.ok(poller.getOperationState().config.operationLocation.includes("/hcpOperationStatuses/"), "the poller follows the operation");
  const created = await poller.pollUntilDone();
  assert.equal(created.properties.provisioningState, "Succeeded");
  assert.equal(created.properties.replicas, nodePool.body.properties.replicas);
});

await step("list in both scopes", async () => {
  const kind = "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters";
  for (const scope of [`/subscriptions/${task.subscription}`, customer.group]) {
    assert.deepEqual((await customer.list(scope + kind)).map((c) => c.name), [cluster.name], scope);
  }
  assert.deepEqual((await customer.list(`${cluster.id}/nodePools`)).map((p) => p.name), [nodePool.name]);

  const filter = "resourceType eq 'Microsoft.RedHatOpenShift/hcpOpenShiftClusters'";
  assert.deepEqual(await names(resources.list({ filter })), [cluster.name]);
  assert.deepEqual(await names(resources.listByResourceGroup(task.resourceGroup, { filter })), [cluster.name]);
});

await step("patch the cluster's tags", async () => {
  // The service merges tags, so that the patch has only the one that changes.
  const tags = { ...cluster.body.tags, mood: "good" };
  const patched = await resources.beginUpdateByIdAndWait(cluster.id, task.apiVersion, { tags: { mood: "good" } }, often);
  assert.deepEqual(patched.tags, tags);
  assert.deepEqual((await resources.getById(cluster.id, task.apiVersion)).tags, tags);
});

await step("scale the node pool up and down", async () => {
  for (const replicas of [3, 1]) {
    const patched = await resources.beginUpdateByIdAndWait(nodePool.id, task.apiVersion, { properties: { replicas } }, often);
    assert.equal(patched.properties.replicas, replicas);
    assert.equal(patched.properties.provisioningState, "Succeeded");
  }
});

await step("an external authentication: create, read, list, patch, delete", async () => {
  const created = await resources.beginCreateOrUpdateByIdAndWait(externalAuth.id, task.apiVersion, externalAuth.body, often);
  assert.equal(created.properties.issuer.url, externalAuth.body.properties.issuer.url);
  assert.equal((await resources.getById(externalAuth.id, task.apiVersion)).name, externalAuth.name);
  assert.deepEqual((await customer.list(`${cluster.id}/externalAuths`)).map((e) => e.name), [externalAuth.name]);
  const claim = { mappings: { username: { claim: "upn" } } };
  const patched = await resources.beginUpdateByIdAndWait(externalAuth.id, task.apiVersion, { properties: { claim } }, often);
  assert.equal(patched.properties.claim.mappings.username.claim, "upn");
  await resources.beginDeleteByIdAndWait(externalAuth.id, task.apiVersion, often);
  assert.equal((await refusal(resources.getById(externalAuth.id, task.apiVersion))).statusCode, 404);
});

await step("request an administrator's credential, use it, revoke it", async () => {
  const request = credential.request && { certificateSigningRequest: credential.request };
  const poller = await customer.act(`${cluster.id}/requestAdminCredential`, request);
  const { kubeconfig, expirationTimestamp } = await poller.pollUntilDone();
  assert.ok(Date.parse(expirationTimestamp) > Date.now(), "the credential expires in the future");
  assert.equal(kubeconfig.includes("client-key"), !request, "the response contains a key if and only if the service generated it");
  assert.equal(await askHostedCluster(kubeconfig, credential.key, "/api/v1/nodes", task.proxy), 200);

  await (await customer.act(`${cluster.id}/revokeCredentials`)).pollUntilDone();
  assert.equal(await askHostedCluster(kubeconfig, credential.key, "/api/v1/nodes", task.proxy), 401, "a revoked credential still works");
});

await step("delete the cluster with its last node pool", async () => {
  const last = await refusal(resources.beginDeleteByIdAndWait(nodePool.id, task.apiVersion, often));
  assert.equal(last.statusCode, 409);
  await resources.beginDeleteByIdAndWait(cluster.id, task.apiVersion, often);
  assert.equal((await refusal(resources.getById(nodePool.id, task.apiVersion))).statusCode, 404);
  assert.equal((await refusal(resources.getById(cluster.id, task.apiVersion))).statusCode, 404);
  await resources.beginDeleteByIdAndWait(cluster.id, task.apiVersion, often); // deleting a missing resource succeeds
});
