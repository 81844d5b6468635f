import type { ExternalAuth, HcpOpenShiftCluster, NodePool } from "../sdk/src/index.js";

// What to do, and where.
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
  // A poller that another process has left, for --resume.
  poller?: string;
}
