import assert from "node:assert/strict";
import {
  type ExternalAuthProperties,
  type HcpOpenShiftClusterProperties,
  type RedHatOpenShiftHcpClient,
} from "../sdk/src/index.js";
import type { Task } from "./task.js";

// extend sets the vault of etcd's key, which later api-versions have beside the key.
export function extend(properties: HcpOpenShiftClusterProperties): void {
  properties.etcd!.dataEncryption!.customerManaged!.kms!.activeKey.vaultName = "vault";
}

export function observed({ etcd }: HcpOpenShiftClusterProperties): void {
  assert.equal(etcd?.dataEncryption?.customerManaged?.kms?.activeKey.vaultName, "vault");
}

export function observedAuth({ condition }: ExternalAuthProperties): void {
  assert.equal(condition, undefined);
}

export function requestCredential(client: RedHatOpenShiftHcpClient, task: Task, name: string) {
  return client.hcpOpenShiftClusters.beginRequestAdminCredential(task.resourceGroup, name);
}
