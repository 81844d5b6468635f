import assert from "node:assert/strict";
import {
  type ExternalAuthProperties,
  type HcpOpenShiftClusterProperties,
  type RedHatOpenShiftHcpClient,
} from "../sdk/src/index.js";
import type { Task } from "./task.js";

const imageDigestMirrors = [{ source: "registry.redhat.io/ubi9", mirrors: ["mirror.example/ubi9"] }];

// extend sets the properties that not all api-versions have.
export function extend(properties: HcpOpenShiftClusterProperties): void {
  properties.imageDigestMirrors = imageDigestMirrors;
}

export function observed(properties: HcpOpenShiftClusterProperties): void {
  assert.equal(properties.etcd?.dataEncryption?.customerManaged?.kms?.vaultName, "vault");
  assert.deepEqual(properties.imageDigestMirrors, imageDigestMirrors);
}

export function observedAuth({ condition }: ExternalAuthProperties): void {
  assert.equal(condition, undefined);
}

export function requestCredential(client: RedHatOpenShiftHcpClient, task: Task, name: string) {
  return client.hcpOpenShiftClusters.beginRequestAdminCredential(task.resourceGroup, name);
}
