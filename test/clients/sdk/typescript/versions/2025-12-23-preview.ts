import assert from "node:assert/strict";
import {
  KnownEtcdDataEncryptionKeyManagementModeType as KeyManagementMode,
  KnownExternalAuthConditionType,
  type ExternalAuthProperties,
  type HcpOpenShiftClusterProperties,
  type RedHatOpenShiftHcpClient,
} from "../sdk/src/index.js";
import type { Task } from "./task.js";

const imageDigestMirrors = [{ source: "registry.redhat.io/ubi9", mirrors: ["mirror.example/ubi9"] }];

// extend asks for what this api-version has words for, besides those that all have.
export function extend(properties: HcpOpenShiftClusterProperties): void {
  properties.etcd = { dataEncryption: { keyManagementMode: KeyManagementMode.PlatformManaged } };
  properties.imageDigestMirrors = imageDigestMirrors;
}

export function observed(properties: HcpOpenShiftClusterProperties): void {
  assert.equal(properties.etcd?.dataEncryption?.keyManagementMode, KeyManagementMode.PlatformManaged);
  assert.deepEqual(properties.imageDigestMirrors, imageDigestMirrors);
}

export function observedAuth({ condition }: ExternalAuthProperties): void {
  if (condition) assert.ok(condition.type in KnownExternalAuthConditionType && condition.lastTransitionTime instanceof Date);
}

export function requestCredential(client: RedHatOpenShiftHcpClient, task: Task, name: string) {
  return client.hcpOpenShiftClusters.beginRequestAdminCredential(task.resourceGroup, name);
}
