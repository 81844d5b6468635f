package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples holds the examples of the commands that package adminv1 does not declare, by their path, as pairs of a purpose and a command line.
var examples = map[string][][2]string{
	"hcpctl access activate":            {{"Activate an approved request", "hcpctl access activate 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11"}},
	"hcpctl access approve":             {{"Approve the request of another engineer", "hcpctl access approve 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11 --reason 'agreed in the incident call'"}},
	"hcpctl access deny":                {{"Deny the request of another engineer", "hcpctl access deny 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11 --reason 'the incident is closed'"}},
	"hcpctl access end":                 {{"End an elevation", "hcpctl access end 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11"}},
	"hcpctl access list":                {{"List active elevations and requests", "hcpctl access list"}, {"List requests that wait for approval", "hcpctl access list --state Requested"}, {"List emergencies without a review", "hcpctl access list --unreviewed"}},
	"hcpctl access records":             {{"List who had access to a cluster", "hcpctl access records demo"}, {"Print what a customer may see", "hcpctl access records demo --for-customer"}},
	"hcpctl access request":             {{"Request an hour for actions that can be undone", "hcpctl access request --reason 'investigate the control plane' --ticket INC-42"}, {"Request break-glass access to a cluster and wait for the approval", "hcpctl access request --class break-glass --cluster demo --for 2h --reason 'etcd has no leader' --ticket INC-42 --wait"}},
	"hcpctl access review":              {{"Close the review of an emergency", "hcpctl access review 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11 --justified --comment 'nobody could be reached at night'"}},
	"hcpctl access show":                {{"Show an elevation with its decision and review", "hcpctl access show 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11"}},
	"hcpctl alert list":                 {{"List the firing alerts and the silences", "hcpctl alert list"}},
	"hcpctl alert silence":              {{"Silence an alert of one shard for two hours", "hcpctl alert silence AgentSilent --label shard=mgmt-1 --for 2h --reason 'mgmt-1 is rebuilt' --ticket CHG-7"}},
	"hcpctl alert unsilence":            {{"End a silence", "hcpctl alert unsilence 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11 --reason 'mgmt-1 is back' --ticket CHG-7"}},
	"hcpctl audit":                      {{"List the last 50 audit records", "hcpctl audit"}, {"List the last 200 as JSON", "hcpctl audit --limit 200 -o json"}},
	"hcpctl audit verify":               {{"Verify the audit of the local region", "hcpctl audit verify"}, {"Verify a copy of a sink", "hcpctl audit verify --sink sink --witness witness --keys keys"}},
	"hcpctl break-glass certificate":    {{"Renew a certificate after its class was revoked", "hcpctl break-glass certificate --access sre.kubeconfig.access --renew"}},
	"hcpctl break-glass list":           {{"List the credentials of a cluster", "hcpctl break-glass list demo"}},
	"hcpctl break-glass request":        {{"Request access for an hour", "hcpctl break-glass request demo -f sre.kubeconfig --reason 'etcd has no leader' --ticket INC-42"}},
	"hcpctl break-glass revoke":         {{"Revoke all credentials of SREs", "hcpctl break-glass revoke demo --reason 'the incident is over' --ticket INC-42"}, {"Revoke one credential of an SRE", "hcpctl break-glass revoke demo --credential d0c4d6a0-5a3e-4d5e-93f5-6b2b8e2b1f31 --reason 'the laptop was stolen' --ticket INC-42"}},
	"hcpctl break-glass show":           {{"Show a credential", "hcpctl break-glass show d0c4d6a0-5a3e-4d5e-93f5-6b2b8e2b1f31"}},
	"hcpctl cluster create":             {{"Create a cluster with defaults", "hcpctl cluster create demo"}, {"Create a cluster from a file", "hcpctl cluster create demo -f cluster.yaml"}},
	"hcpctl cluster credential request": {{"Write an administrator kubeconfig", "hcpctl cluster credential request demo -f demo.kubeconfig"}},
	"hcpctl cluster credential revoke":  {{"Revoke all administrator credentials", "hcpctl cluster credential revoke demo"}},
	"hcpctl cluster delete":             {{"Delete a cluster and wait until it is gone", "hcpctl cluster delete demo"}, {"Delete a cluster in the background", "hcpctl cluster delete demo --no-wait"}},
	"hcpctl cluster dump":               {{"Print the state of all layers as YAML", "hcpctl cluster dump demo"}},
	"hcpctl cluster status":             {{"Show the layers and the conditions of a cluster", "hcpctl cluster status demo"}},
	"hcpctl cluster find":               {{"Find a cluster by name", "hcpctl cluster find demo"}, {"Find the cluster of a namespace", "hcpctl cluster find ocm-local-1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae"}, {"Find the cluster of an API server", "hcpctl cluster find https://api.demo.0ulz.westus3.aroapp-hcp.io:443"}},
	"hcpctl cluster get":                {{"Show a cluster", "hcpctl cluster get demo"}},
	"hcpctl cluster journal":            {{"Show whether the API of a cluster was available", "hcpctl cluster journal demo"}},
	"hcpctl cluster kubeconfig":         {{"Write the kubeconfig to a file", "hcpctl cluster kubeconfig demo -f demo.kubeconfig"}},
	"hcpctl cluster list":               {{"List the clusters of a resource group", "hcpctl cluster list -g demo"}, {"List the clusters of the subscription", "hcpctl cluster list --all"}, {"List the clusters of the region that have waited for nodes for 10 minutes", "hcpctl cluster list --region --not-ready --older-than 10m --concern node-pool"}},
	"hcpctl cluster update":             {{"Set one tag and remove another", "hcpctl cluster update demo --tag stage=test --tag owner-"}, {"Change the properties in a file", "hcpctl cluster update demo -f change.yaml"}},
	"hcpctl cluster watch":              {{"Watch a cluster until its operation completes", "hcpctl cluster watch demo"}},
	"hcpctl completion bash":            {{"Print the completion for bash", "hcpctl completion bash"}},
	"hcpctl completion fish":            {{"Print the completion for fish", "hcpctl completion fish"}},
	"hcpctl completion powershell":      {{"Print the completion for PowerShell", "hcpctl completion powershell"}},
	"hcpctl completion zsh":             {{"Print the completion for zsh", "hcpctl completion zsh"}},
	"hcpctl help":                       {{"Show the help of a command", "hcpctl help cluster create"}},
	"hcpctl config diff":                {{"Compare two environments", "hcpctl config diff public/stage public/prod"}, {"Compare the values in effect of two regions", "hcpctl config diff public/prod/uksouth public/prod/westus3 --resolved"}},
	"hcpctl config explain":             {{"Show a key in all regions", "hcpctl config explain frontend.replicas"}, {"Show which layer sets a key, and why", "hcpctl config explain frontend.replicas public/prod/uksouth"}},
	"hcpctl config list":                {{"List all targets", "hcpctl config list"}},
	"hcpctl config render":              {{"Print the configuration of a region", "hcpctl config render public/prod/uksouth"}, {"Update config/rendered", "hcpctl config render --write"}},
	"hcpctl config validate":            {{"Check all regions and stamps", "hcpctl config validate"}},
	"hcpctl dashboard list":             {{"List the dashboards", "hcpctl dashboard list"}},
	"hcpctl dashboard render":           {{"Draw all dashboards of the local region", "hcpctl dashboard render --into dashboards"}, {"Draw the last 6 hours of one shard", "hcpctl dashboard render shard-triage --since 6h --variable shard=mgmt-1 --into dashboards --prometheus http://127.0.0.1:9090"}},
	"hcpctl dashboard show":             {{"Show the values of a dashboard", "hcpctl dashboard show region"}, {"Show what is beyond its limit, with the runbook", "hcpctl dashboard show hosted-apis --bad"}},
	"hcpctl deletion leftovers":         {{"List what forced deletions left behind", "hcpctl deletion leftovers"}, {"List those of a cluster", "hcpctl deletion leftovers demo"}},
	"hcpctl deletion list":              {{"List stuck deletions", "hcpctl deletion list --stuck"}},
	"hcpctl deletion show":              {{"Show the steps of a deletion", "hcpctl deletion show demo"}},
	"hcpctl drift list":                 {{"List all differences", "hcpctl drift list"}},
	"hcpctl timeline":                   {{"Show the last hour of a cluster", "hcpctl timeline demo --since 1h"}, {"Show how the desired state changed between two times", "hcpctl timeline demo --from 2026-11-24T01:00:00Z --to 2026-11-24T02:00:00Z --desired-state"}, {"Show only actions of SREs and changes of conditions", "hcpctl timeline demo --kind Action,Condition"}},
	"hcpctl trace":                      {{"Show the trace of an operation", "hcpctl trace 38a61b65-0c3f-4d55-9f0c-6b7ac8b4e0d1"}, {"Show the traces of all recent changes of a cluster, for a program", "hcpctl trace /subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo -o json"}},
	"hcpctl explain":                    {{"Explain the region", "hcpctl explain"}, {"Explain a cluster", "hcpctl explain demo"}, {"Explain the cluster of a namespace, for a program", "hcpctl explain ocm-local-1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae -o json"}},
	"hcpctl externalauth create":        {{"Accept the tokens of an issuer", "hcpctl externalauth create demo entra --issuer https://login.example.com --audience api://demo"}},
	"hcpctl externalauth delete":        {{"Delete an external authentication", "hcpctl externalauth delete demo entra"}},
	"hcpctl externalauth get":           {{"Show an external authentication", "hcpctl externalauth get demo entra"}},
	"hcpctl externalauth update":        {{"Change the properties in a file", "hcpctl externalauth update demo entra -f entra.yaml"}},
	"hcpctl externalauth list":          {{"List those of a cluster", "hcpctl externalauth list demo"}},
	"hcpctl must-gather":                {{"Collect the state of a cluster", "hcpctl must-gather demo"}},
	"hcpctl keys add":                   {{"Add a key", "hcpctl keys add keyset.json"}},
	"hcpctl keys list":                  {{"List the keys of a keyset", "hcpctl keys list keyset.json"}},
	"hcpctl keys promote":               {{"Seal with another key from now on", "hcpctl keys promote keyset.json 1234567890"}},
	"hcpctl keys public":                {{"Write the public keyset for Cluster Service", "hcpctl keys public private.json mgmt-3.json"}},
	"hcpctl keys rotate": {{"Replace the key of the local region with which Cluster Service seals signing keys", "hcpctl keys rotate signing-keys"},
		{"Replace the key with which admin signs audit records", "hcpctl keys rotate audit --service admin"},
		{"Replace the key of an agent of the local region", "hcpctl keys rotate agent --shard mgmt-1"},
		{"Replace the key of two frontends in production", "hcpctl keys rotate credentials --keyset keyset.json --publish ./store-in-vault --replica frontend=http://10.0.0.7:8080/metrics --replica frontend=http://10.0.0.8:8080/metrics"}},
	"hcpctl keys remove":     {{"Remove a former key", "hcpctl keys remove keyset.json 1234567890"}},
	"hcpctl login":           {{"Sign in to the local region with a browser", "hcpctl login"}, {"Sign in to a region of Azure on a machine without a browser", "hcpctl login --device --issuer https://login.microsoftonline.com/TENANT/v2.0 --client-id CLIENT-ID --admin-audience api://AUDIENCE"}},
	"hcpctl logout":          {{"Remove your logins for the region", "hcpctl logout"}, {"Remove all logins", "hcpctl logout --all"}},
	"hcpctl nodepool create": {{"Create a node pool of 3 nodes", "hcpctl nodepool create demo workers --replicas 3"}},
	"hcpctl nodepool delete": {{"Delete a node pool", "hcpctl nodepool delete demo workers"}},
	"hcpctl nodepool get":    {{"Show a node pool", "hcpctl nodepool get demo workers"}},
	"hcpctl nodepool list":   {{"List the node pools of a cluster", "hcpctl nodepool list demo"}},
	"hcpctl nodepool update": {{"Let the autoscaler choose between 3 and 10 nodes", "hcpctl nodepool update demo workers --min 3 --max 10"},
		{"Set a label, remove another one, and set a taint", "hcpctl nodepool update demo workers --label tier=gold --label stage- --taint dedicated=gpu:NoSchedule"},
		{"Upgrade the nodes", "hcpctl nodepool update demo workers --version 4.20.9"}},
	"hcpctl nodepool scale": {{"Scale a node pool as the customer", "hcpctl nodepool scale demo workers --replicas 5"},
		{"Scale a node pool in the customer's place", "hcpctl nodepool scale demo workers --replicas 5 --as-sre --reason 'the batch is late' --ticket INC-42"},
		{"Let the autoscaler choose between 3 and 10 nodes", "hcpctl nodepool scale demo workers --min 3 --max 10 --as-sre --reason 'load varies' --ticket INC-42"}},
	"hcpctl operation get":        {{"Show an admin operation", "hcpctl operation get 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11"}},
	"hcpctl operation list":       {{"List the failed operations of a cluster", "hcpctl operation list --cluster demo --state Failed"}},
	"hcpctl azure-orphan list":    {{"List resources in Azure that belong to no cluster", "hcpctl azure-orphan list"}},
	"hcpctl orphan list":          {{"List orphaned bundles", "hcpctl orphan list"}},
	"hcpctl egress link list":     {{"List the links", "hcpctl egress link list"}},
	"hcpctl quota set":            {{"Let a subscription have 250 clusters", "hcpctl quota set 11111111-1111-1111-1111-111111111111 --clusters 250 --reason 'the customer asked for it' --ticket INC-42"}, {"Return to the default of the region", "hcpctl quota set 11111111-1111-1111-1111-111111111111 --use-default --reason 'the migration is over' --ticket INC-42"}},
	"hcpctl quota show":           {{"Show the quota of a subscription", "hcpctl quota show 11111111-1111-1111-1111-111111111111"}},
	"hcpctl region ca rotate":     {{"Replace the authority of the local region", "hcpctl region ca rotate"}},
	"hcpctl region demo":          {{"Create the demo cluster", "hcpctl region demo"}},
	"hcpctl region down":          {{"Stop the region", "hcpctl region down"}, {"Stop the region and remove its data", "hcpctl region down --purge"}},
	"hcpctl region events":        {{"List what happened to the backend in the last ten minutes", "hcpctl region events backend --since 10m"}},
	"hcpctl region kill":          {{"Kill the backend", "hcpctl region kill backend"}},
	"hcpctl region logs":          {{"Follow the log of the frontend", "hcpctl region logs -f frontend"}},
	"hcpctl region restart":       {{"Restart Cluster Service", "hcpctl region restart cluster-service"}},
	"hcpctl region status":        {{"List the processes", "hcpctl region status"}},
	"hcpctl region up":            {{"Run a region in the background with a demo cluster", "hcpctl region up --detach --demo"}},
	"hcpctl shard cordon":         {{"Cordon a shard", "hcpctl shard cordon mgmt-1 --reason 'node image update' --ticket CHG-8"}},
	"hcpctl shard explain":        {{"Explain where a cluster was placed and why", "hcpctl shard explain demo"}},
	"hcpctl shard list":           {{"List the shards", "hcpctl shard list"}},
	"hcpctl shard place":          {{"Place a cluster in zones 1 and 2", "hcpctl shard place demo --zones 1,2 --reason 'zone 3 is full' --ticket CHG-8"}, {"Remove the rules of a cluster", "hcpctl shard place demo --none --reason 'zone 3 has capacity' --ticket CHG-8"}},
	"hcpctl shard plan":           {{"Show where the clusters of a shard would go", "hcpctl shard plan mgmt-1"}},
	"hcpctl shard set":            {{"Raise the capacity", "hcpctl shard set mgmt-1 --capacity 150 --reason 'it has more nodes' --ticket CHG-8"}, {"Use the capacity of the shards file again", "hcpctl shard set mgmt-1 --use-configured capacity --reason 'the file is updated' --ticket CHG-8"}},
	"hcpctl shard show":           {{"Show a shard", "hcpctl shard show mgmt-1"}},
	"hcpctl shard uncordon":       {{"Uncordon a shard", "hcpctl shard uncordon mgmt-1 --reason 'node images are updated' --ticket CHG-8"}},
	"hcpctl upgrade list":         {{"List upgrades in progress", "hcpctl upgrade list"}, {"Include those of the last 7 days", "hcpctl upgrade list --all"}},
	"hcpctl upgrade plan":         {{"Show the newest possible upgrade", "hcpctl upgrade plan demo"}, {"Show the upgrade to a version with all node pools", "hcpctl upgrade plan demo 4.21.4 --node-pools all"}},
	"hcpctl upgrade policy apply": {{"Upgrade 50 clusters at a time on weekends", "hcpctl upgrade policy apply patches --max-concurrent 50 --window 'SAT,SUN 01:00 240' --reason 'monthly patches' --ticket CHG-8"}},
	"hcpctl upgrade policy list":  {{"List the policies", "hcpctl upgrade policy list"}},
	"hcpctl upgrade policy show":  {{"Show the progress of a policy", "hcpctl upgrade policy show patches"}},
	"hcpctl upgrade start":        {{"Upgrade a control plane", "hcpctl upgrade start demo 4.21.4 --reason 'security fix' --ticket CHG-8"}, {"Upgrade at night, with all node pools", "hcpctl upgrade start demo 4.21.4 --node-pools all --not-before 2026-11-21T22:00:00Z --reason 'security fix' --ticket CHG-8"}},
	"hcpctl upgrade status":       {{"Show the progress of an upgrade", "hcpctl upgrade status demo"}},
	"hcpctl version list":         {{"List the versions", "hcpctl version list"}},
	"hcpctl whoami":               {{"Show your roles", "hcpctl whoami"}},
	"hcpctl work list":            {{"List the bundles of a cluster", "hcpctl work list demo"}},
}

// addExamples sets the examples of a command and its subcommands.
func addExamples(c *cobra.Command) {
	for _, child := range c.Commands() {
		addExamples(child)
	}
	if list := examples[c.CommandPath()]; len(list) > 0 {
		c.Example = exampleText(list)
	}
}

// exampleText returns the examples of a command, pairs of a purpose and a command line, in the form of its help.
func exampleText(list [][2]string) string {
	var text []string
	for _, example := range list {
		text = append(text, "  # "+example[0]+"\n  "+example[1])
	}
	return strings.Join(text, "\n\n")
}
