import type { ExternalAuth, HcpOpenShiftCluster, NodePool } from "../sdk/src/index.js";

// The input of the program.
export interface Task {
  arm: string;
  client: { tenantId: string; clientId: string; clientSecret: string };
  location: string;
  apiVersion: string;
  subscription: string;
  resourceGroup: string;
  clusters: Record<string, HcpOpenShiftCluster>;
  nodePool: NodePool;
  externalAuth: ExternalAuth;
  signingRequest: string;
  // The poller state of another process, for --resume.
  poller?: string;
}
