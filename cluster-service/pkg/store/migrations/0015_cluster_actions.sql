-- +goose Up
-- The actions of SREs on clusters: hcpmesh.clusterservice.v1.ClusterAction, named Intervention before.
ALTER TABLE interventions RENAME TO cluster_actions;
ALTER TABLE cluster_actions RENAME COLUMN intervention TO action;
ALTER TABLE cluster_actions RENAME CONSTRAINT interventions_pkey TO cluster_actions_pkey;
ALTER INDEX interventions_cluster RENAME TO cluster_actions_cluster;
