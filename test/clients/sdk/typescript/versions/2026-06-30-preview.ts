import assert from "node:assert/strict";
import {
  KnownConditionType,
  KnownCryptoRestrictions,
  KnownIngressType,
  KnownStatusType,
  type ExternalAuthProperties,
  type HcpOpenShiftClusterProperties,
  type RedHatOpenShiftHcpClient,
  type ResourceStatus,
} from "../sdk/src/index.js";
import type { Task } from "./task.js";

const imageDigestMirrors = [{ source: "registry.redhat.io/ubi9", mirrors: ["mirror.example/ubi9"] }];

// extend sets the properties that not all api-versions have.
export function extend(properties: HcpOpenShiftClusterProperties): void {
  properties.imageDigestMirrors = imageDigestMirrors;
  properties.ingress = { type: KnownIngressType.Public };
  properties.cryptoRestrictions = KnownCryptoRestrictions.None;
}

export function observed(properties: HcpOpenShiftClusterProperties): void {
  assert.equal(properties.etcd?.dataEncryption?.customerManaged?.kms?.vaultName, "vault");
  assert.deepEqual(properties.imageDigestMirrors, imageDigestMirrors);
  assert.equal(properties.ingress?.type, KnownIngressType.Public);
  available(properties.status);
}

export function observedAuth({ status }: ExternalAuthProperties): void {
  available(status);
}

function available(status?: ResourceStatus): void {
  const condition = status?.conditions?.find(({ type }) => type === KnownConditionType.Available);
  assert.equal(condition?.status, KnownStatusType.True);
  assert.ok(condition.lastTransitionTime instanceof Date);
}

export function requestCredential(client: RedHatOpenShiftHcpClient, task: Task, name: string) {
  return client.hcpOpenShiftClusters.beginRequestAdminCredential(task.resourceGroup, name);
}
