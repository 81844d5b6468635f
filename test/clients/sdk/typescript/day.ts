import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { RestError } from "@azure/core-rest-pipeline";
import type { PagedAsyncIterableIterator } from "@azure/core-paging";
import {
  KnownExternalAuthProvisioningState,
  KnownProvisioningState,
  type ExternalAuth,
  type HcpOpenShiftCluster,
} from "../sdk/src/index.js";
import { Connection } from "./connection.js";
import type { Task } from "./task.js";
import { check } from "./typed.js";
import { extend, observed, observedAuth, requestCredential } from "./version.js";

// refusal returns the ARM error that a promise is rejected with.
async function refusal(promise: Promise<unknown>, status: number, code: string): Promise<RestError> {
  const error = await rejection(promise);
  assert.ok(error instanceof RestError, String(error));
  assert.equal(error.statusCode, status, error.message);
  assert.equal(error.code, code);
  return error;
}

async function rejection(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail("it was not refused");
}

// The steps of the test.
export class Day {
  readonly #task: Task;
  readonly #connection: Connection;

  constructor(task: Task) {
    this.#task = task;
    this.#connection = new Connection(task);
  }

  steps(): [string, () => Promise<void>][] {
    return [
      ["what the provider and the region offer", () => this.#seeOffers()],
      ["what is not there", () => this.#missMissing()],
      ["a fault in a cluster", () => this.#sendFault()],
      ["create a cluster, as often as told", () => this.#createCluster()],
      ["stop waiting, and go on in another process", () => this.#createAndResume()],
      ["delete a cluster while it is created", () => this.#deleteEarly()],
      ["lists of clusters", () => this.#listClusters()],
      ["update a cluster", () => this.#updateCluster()],
      ["node pools", () => this.#manageNodePools()],
      ["an external authentication", () => this.#manageExternalAuth()],
      ["credentials", () => this.#manageCredentials()],
      ["delete what is left", () => this.#deleteClusters()],
    ];
  }

  get #group() {
    return this.#task.resourceGroup;
  }
  get #clusters() {
    return this.#connection.client.hcpOpenShiftClusters;
  }
  get #body() {
    return this.#connection.last.body;
  }

  // pagesOf reads all pages of a list and checks each item.
  async #pagesOf<T>(list: () => PagedAsyncIterableIterator<T, T[]>, one: (item: T, body: string) => void): Promise<T[]> {
    const all: T[] = [];
    for await (const page of list().byPage()) {
      const { value } = JSON.parse(this.#body) as { value: unknown[] };
      page.forEach((item, i) => one(item, JSON.stringify(value[i])));
      all.push(...page);
    }
    return all;
  }

  async #seeOffers(): Promise<void> {
    const { operations, hcpOpenShiftVersions, hcpOperatorIdentityRoleSets } = this.#connection.client;
    const { location } = this.#task;
    const all = await this.#pagesOf(() => operations.list(), (item, body) => check("Operation", item, body));
    const request = all.find(({ name }) => name === "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/requestAdminCredential/action");
    assert.ok(request?.display?.operation, "the provider does not say that credentials can be requested");

    const versions = await this.#pagesOf(() => hcpOpenShiftVersions.list(location), (item, body) => check("HcpOpenShiftVersion", item, body));
    assert.ok(versions.length > 1, "one version is offered at most");
    const version = await hcpOpenShiftVersions.get(location, versions[0].name!);
    check("HcpOpenShiftVersion", version, this.#body);
    assert.ok(versions.some(({ properties }) => (properties!.endOfLifeTimestamp?.getFullYear() ?? 0) >= 2025), "no end of support is offered");

    const sets = await this.#pagesOf(() => hcpOperatorIdentityRoleSets.list(location), (item, body) => check("HcpOperatorIdentityRoleSet", item, body));
    assert.ok(sets.length > 0, "there are no role sets");
    check("HcpOperatorIdentityRoleSet", await hcpOperatorIdentityRoleSets.get(location, sets[0].name!), this.#body);
  }

  // Deleting a missing resource succeeds.
  async #missMissing(): Promise<void> {
    await refusal(this.#clusters.get(this.#group, "absent"), 404, "ResourceNotFound");
    await refusal(this.#connection.client.hcpOpenShiftVersions.get(this.#task.location, "1.0"), 404, "ResourceNotFound");
    this.#connection.exchanges = [];
    await this.#clusters.beginDeleteAndWait(this.#group, "absent");
    assert.equal(this.#connection.exchanges[0].status, 204);
    const aborted = (await rejection(this.#clusters.get(this.#group, "absent", { abortSignal: AbortSignal.abort() }))) as Error;
    assert.equal(aborted.name, "AbortError");
  }

  async #sendFault(): Promise<void> {
    const body = this.#cluster("typed");
    body.properties!.network = { hostPrefix: 30 };
    const error = await refusal(this.#clusters.beginCreateOrUpdate(this.#group, "typed", body), 400, "InvalidRequestContent");
    check("ErrorResponse", error.details, this.#body);
    assert.equal((error.details as { error: { target: string } }).error.target, "properties.network.hostPrefix");
  }

  #cluster(name: string): HcpOpenShiftCluster {
    const cluster = structuredClone(this.#task.clusters[name]);
    extend(cluster.properties!);
    return cluster;
  }

  #created(name: string, cluster: HcpOpenShiftCluster): void {
    check("HcpOpenShiftCluster", cluster, this.#body);
    assert.equal(cluster.name, name);
    const { provisioningState, api, console, dns, platform } = cluster.properties!;
    assert.equal(provisioningState, KnownProvisioningState.Succeeded);
    for (const address of [api?.url, console?.url, dns?.baseDomain, platform.issuerUrl]) assert.ok(address, `an address is missing: ${this.#body}`);
    assert.ok(Math.abs(Date.now() - cluster.systemData!.createdAt!.getTime()) < 3_600_000, "it was not created just now");
    observed(cluster.properties!);
  }

  async #createCluster(): Promise<void> {
    const poller = await this.#clusters.beginCreateOrUpdate(this.#group, "typed", this.#cluster("typed"));
    assert.ok(!poller.isDone(), "its poller has nothing to wait for");
    this.#connection.exchanges = [];
    const result = await poller.pollUntilDone();
    this.#created("typed", result);
    assert.equal(poller.getResult(), result);
    assert.ok(this.#connection.heeded() > 0, "no answer said how long to wait");
    this.#created("typed", await this.#clusters.get(this.#group, "typed"));
  }

  // createAndResume stops waiting at the first poll that finds the operation in progress, and lets another process wait.
  async #createAndResume(): Promise<void> {
    const poller = await this.#clusters.beginCreateOrUpdate(this.#group, "resumed", this.#cluster("resumed"));
    const impatience = new AbortController();
    poller.onProgress(() => impatience.abort());
    const aborted = (await rejection(poller.pollUntilDone({ abortSignal: impatience.signal }))) as Error;
    assert.equal(aborted.name, "AbortError", String(aborted));
    assert.ok(!poller.isDone(), "a poller that was given up is done");
    const input = JSON.stringify({ ...this.#task, poller: poller.toString() });
    const { status, stdout, stderr } = spawnSync(process.execPath, [process.argv[1], "--resume"], { input, encoding: "utf8" });
    assert.equal(status, 0, `the other process: ${stdout}${stderr}`);
  }

  // The part of the other process.
  async finishResumed(): Promise<void> {
    const poller = await this.#clusters.beginCreateOrUpdate(this.#group, "resumed", this.#cluster("resumed"), { resumeFrom: this.#task.poller });
    this.#created("resumed", await poller.pollUntilDone());
    assert.ok(!this.#connection.exchanges.some(({ method }) => method !== "GET"), "the request was sent again");
  }

  // Deletes a cluster during its creation. The creation is then canceled, unless it has already succeeded.
  async #deleteEarly(): Promise<void> {
    const creation = await this.#clusters.beginCreateOrUpdate(this.#group, "short-lived", this.#cluster("short-lived"));
    await this.#deleteCluster("short-lived");
    const error = await rejection(creation.pollUntilDone());
    const { status } = creation.getOperationState();
    assert.ok(status === "canceled" || (error as RestError).code === "ResourceNotFound", `${status}: ${error}`);
  }

  async #deleteCluster(name: string): Promise<void> {
    const poller = await this.#clusters.beginDelete(this.#group, name);
    await poller.pollUntilDone();
    await refusal(this.#clusters.get(this.#group, name), 404, "ResourceNotFound");
  }

  async #deleteClusters(): Promise<void> {
    await Promise.all(["typed", "resumed"].map((name) => this.#deleteCluster(name)));
  }

  async #listClusters(): Promise<void> {
    const one = (item: HcpOpenShiftCluster, body: string) => check("HcpOpenShiftCluster", item, body);
    for (const list of [() => this.#clusters.listByResourceGroup(this.#group), () => this.#clusters.listBySubscription()]) {
      const found = await this.#pagesOf(list, one);
      assert.deepEqual(found.map(({ name }) => name).sort(), ["resumed", "typed"]);
    }
  }

  async #updateCluster(): Promise<void> {
    const tags = { "made-by": "sdk", mood: "good" };
    const poller = await this.#clusters.beginUpdate(this.#group, "typed", { tags, properties: { nodeDrainTimeoutMinutes: 45 } });
    const updated = await poller.pollUntilDone();
    this.#created("typed", updated);
    assert.deepEqual(updated.tags, tags);
    assert.equal(updated.properties!.nodeDrainTimeoutMinutes, 45);

    // A client that changes one field writes back what it has read.
    const same = await (await this.#clusters.beginCreateOrUpdate(this.#group, "typed", updated)).pollUntilDone();
    this.#created("typed", same);
    assert.deepEqual(same.tags, tags);
    assert.equal(same.properties!.nodeDrainTimeoutMinutes, 45);

    // The service merges the tags of a PATCH.
    const merged = await (await this.#clusters.beginUpdate(this.#group, "typed", { tags: { mood: "better" } })).pollUntilDone();
    assert.deepEqual(merged.tags, { ...tags, mood: "better" });
  }

  async #manageNodePools(): Promise<void> {
    const { nodePools } = this.#connection.client;
    const pool = structuredClone(this.#task.nodePool);
    pool.properties!.labels = [{ key: "example.com/tier", value: "front" }];
    pool.properties!.taints = [{ key: "example.com/tier", value: "front", effect: "PreferNoSchedule" }];
    for (const name of ["first", "second"]) {
      const created = await (await nodePools.beginCreateOrUpdate(this.#group, "typed", name, pool)).pollUntilDone();
      check("NodePool", created, this.#body);
      assert.equal(created.properties!.provisioningState, KnownProvisioningState.Succeeded);
      assert.equal(created.properties!.replicas, 1);
    }
    const found = await this.#pagesOf(() => nodePools.listByParent(this.#group, "typed"), (item, body) => check("NodePool", item, body));
    assert.deepEqual(found.map(({ name }) => name).sort(), ["first", "second"]);

    const scaled = await (await nodePools.beginUpdate(this.#group, "typed", "first", { properties: { replicas: 2 } })).pollUntilDone();
    check("NodePool", scaled, this.#body);
    assert.equal(scaled.properties!.replicas, 2);
    const got = await nodePools.get(this.#group, "typed", "first");
    check("NodePool", got, this.#body);
    assert.equal(got.properties!.replicas, 2);

    await (await nodePools.beginDelete(this.#group, "typed", "second")).pollUntilDone();
    await refusal(nodePools.get(this.#group, "typed", "second"), 404, "ResourceNotFound");
  }

  async #manageExternalAuth(): Promise<void> {
    const { externalAuths } = this.#connection.client;
    const auth: ExternalAuth = structuredClone(this.#task.externalAuth);
    auth.properties!.claim.validationRules = [{ type: "RequiredClaim", requiredClaim: { claim: "hd", requiredValue: "example.com" } }];
    const created = await (await externalAuths.beginCreateOrUpdate(this.#group, "typed", "entra", auth)).pollUntilDone();
    check("ExternalAuth", created, this.#body);
    assert.equal(created.properties!.provisioningState, KnownExternalAuthProvisioningState.Succeeded);
    observedAuth(created.properties!);
    const found = await this.#pagesOf(() => externalAuths.listByParent(this.#group, "typed"), (item, body) => check("ExternalAuth", item, body));
    assert.deepEqual(found.map(({ name }) => name), ["entra"]);

    const patch = { properties: { claim: { mappings: { username: { claim: "upn" } } } } };
    const changed = await (await externalAuths.beginUpdate(this.#group, "typed", "entra", patch)).pollUntilDone();
    check("ExternalAuth", changed, this.#body);
    assert.equal(changed.properties!.claim.mappings.username.claim, "upn");

    await (await externalAuths.beginDelete(this.#group, "typed", "entra")).pollUntilDone();
    await refusal(externalAuths.get(this.#group, "typed", "entra"), 404, "ResourceNotFound");
  }

  async #manageCredentials(): Promise<void> {
    const poller = await requestCredential(this.#connection.client, this.#task, "typed");
    const credential = await poller.pollUntilDone();
    check("HcpOpenShiftClusterAdminCredential", credential, this.#body);
    assert.ok(credential.kubeconfig, "it has no kubeconfig");
    assert.ok(credential.expirationTimestamp > new Date(), "it has ended");
    await (await this.#clusters.beginRevokeCredentials(this.#group, "typed")).pollUntilDone();
  }
}
