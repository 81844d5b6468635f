package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// kind describes a kind of ARM resource, from which the commands for the kind are built: its names, its IDs and its columns.
type kind struct {
	// noun names one resource of the kind in messages.
	noun string
	// command is the name of the command whose subcommands manage the kind.
	command string
	// progress is the subcommand that shows how far an operation is.
	progress string
	// change states how an existing resource is changed.
	change string
	// names are the positional arguments: the name of the cluster, if any, then the name of the resource.
	names []string
	id    func(client *armclient.Client, names []string) string
	// list lists the resources below all names but the last.
	list func(ctx context.Context, client *armclient.Client, names []string) ([]armclient.Resource, error)
	// fields lists the fields of the resource's wire form.
	fields func() []shape.Entry
	row    func(armclient.Resource) display.Row
	// detail returns the lines below the row of a single resource; may be nil.
	detail func(resource map[string]any) []string
}

func clusters() kind {
	return kind{
		noun: "cluster", command: "cluster", progress: "watch", change: "change it with `hcpctl cluster update`", names: []string{"NAME"},
		id: func(client *armclient.Client, names []string) string { return client.ClusterID(names[0]) },
		list: func(ctx context.Context, client *armclient.Client, _ []string) ([]armclient.Resource, error) {
			return client.Clusters(ctx, false)
		},
		fields: func() []shape.Entry {
			return shape.Bind[hub.Cluster, hub.ClusterStatus](version.Newest().Cluster).Entries()
		},
		row: func(r armclient.Resource) display.Row {
			return display.Row{
				{"NAME", field(r, "name")}, {"RESOURCE GROUP", groupOf(field(r, "id"))}, {"LOCATION", field(r, "location")}, {"VERSION", field(r, "properties", "version", "id")},
				{"STATE", field(r, "properties", "provisioningState")}, {"API", field(r, "properties", "api", "url")},
			}
		},
		detail: conditions,
	}
}

func nodePools() kind {
	return kind{
		noun: "node pool", command: "nodepool", progress: "get", change: "change it with `hcpctl nodepool update`", names: []string{"CLUSTER", "NAME"},
		id: func(client *armclient.Client, names []string) string { return client.NodePoolID(names[0], names[1]) },
		list: func(ctx context.Context, client *armclient.Client, names []string) ([]armclient.Resource, error) {
			return client.List(ctx, client.ClusterID(names[0])+"/nodePools")
		},
		fields: func() []shape.Entry {
			return shape.Bind[hub.NodePool, hub.NodePoolStatus](version.Newest().NodePool).Entries()
		},
		row: func(r armclient.Resource) display.Row {
			nodes := field(r, "properties", "replicas")
			if low := field(r, "properties", "autoScaling", "min"); low != "" {
				nodes = low + "–" + field(r, "properties", "autoScaling", "max")
			}
			return display.Row{
				{"NAME", field(r, "name")}, {"VERSION", field(r, "properties", "version", "id")}, {"VM SIZE", field(r, "properties", "platform", "vmSize")}, {"NODES", nodes},
				{"STATE", field(r, "properties", "provisioningState")},
			}
		},
	}
}

func externalAuths() kind {
	return kind{
		noun: "external authentication", command: "externalauth", progress: "get", change: "change it with `hcpctl externalauth update`", names: []string{"CLUSTER", "NAME"},
		id: func(client *armclient.Client, names []string) string {
			return client.ExternalAuthID(names[0], names[1])
		},
		list: func(ctx context.Context, client *armclient.Client, names []string) ([]armclient.Resource, error) {
			return client.List(ctx, client.ClusterID(names[0])+"/externalAuths")
		},
		fields: func() []shape.Entry {
			return shape.Bind[hub.ExternalAuth, hub.ExternalAuthStatus](version.Newest().ExternalAuth).Entries()
		},
		row: func(r armclient.Resource) display.Row {
			return display.Row{
				{"NAME", field(r, "name")}, {"ISSUER", field(r, "properties", "issuer", "url")}, {"AUDIENCES", field(r, "properties", "issuer", "audiences")},
				{"USERNAME CLAIM", field(r, "properties", "claim", "mappings", "username", "claim")}, {"STATE", field(r, "properties", "provisioningState")},
			}
		},
	}
}

// a returns the noun with its article.
func (k kind) a() string {
	if strings.ContainsRune("aeiou", rune(k.noun[0])) {
		return "an " + k.noun
	}
	return "a " + k.noun
}

// of returns the usage of a verb on a resource of the kind.
func (k kind) of(verb string) string {
	for _, name := range k.names {
		verb += " " + name
	}
	return verb
}

// withList adds the command that lists the resources of the kind to the error of a resource that does not exist.
func (k kind) withList(names []string, err error) error {
	if !armclient.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("%w\nlist existing ones with `hcpctl %s`", err, strings.Join(append([]string{k.command, "list"}, names[:len(names)-1]...), " "))
}

// print prints resources as a table, or all as JSON or YAML.
func (e *environment) print(k kind, all any, resources ...armclient.Resource) error {
	return e.printAs(all, func() error { return display.List(e.out, resources, k.row) })
}

func (e *environment) get(k kind) *cobra.Command {
	c := &cobra.Command{
		Use: k.of("get"), Short: "Show " + k.a(), ValidArgsFunction: e.completeNames(k),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, names []string) error {
			resource, err := client.Get(ctx, k.id(client, names))
			if err != nil {
				return k.withList(names, err)
			}
			if err := e.print(k, resource, resource); err != nil || k.detail == nil || e.output != "table" {
				return err
			}
			for _, line := range k.detail(resource) {
				fmt.Fprintln(e.out, "  "+line)
			}
			return nil
		}),
	}
	return e.addOutputFlag(c)
}

// list returns the command that lists resources of a kind.
func (e *environment) list(k kind, short string) *cobra.Command {
	parents := kind{names: k.names[:len(k.names)-1]}
	c := &cobra.Command{
		Use: parents.of("list"), Short: short, Args: cobra.ExactArgs(len(parents.names)),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, names []string) error {
			resources, err := k.list(ctx, client, names)
			if err != nil {
				return err
			}
			return e.print(k, resources, resources...)
		}),
	}
	if len(parents.names) > 0 {
		c.ValidArgsFunction = e.completeNames(clusters())
		c.Long = short + `. STATE is ARM's provisioningState, the result of the last operation.
The verdict on what the cluster and its node pools wait for now: "hcpctl explain CLUSTER" and "hcpctl cluster list --region".`
	}
	return e.addOutputFlag(c)
}

// begin starts an operation on the resource with an ID; names are the arguments of the command.
type begin func(ctx context.Context, client *armclient.Client, id string, names []string) (armclient.Operation, error)

// operate returns a command that starts an operation on a resource and waits for its end.
func (e *environment) operate(k kind, use, short string, begin begin) *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use: use, Short: short, ValidArgsFunction: e.completeNames(k),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, names []string) error {
			id := k.id(client, names)
			operation, err := begin(ctx, client, id, names)
			if err != nil {
				return err
			}
			if noWait {
				return e.printAccepted(operation)
			}
			return e.await(ctx, client, operation, id, k.noun+" "+names[len(names)-1], e.commandLine(append([]string{k.command, k.progress}, names...)...))
		}),
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the request is accepted")
	return c
}

// printAccepted prints an operation that continues.
func (e *environment) printAccepted(operation armclient.Operation) error {
	text := "accepted"
	if id := operation.ID(); id != "" {
		text = "operation " + id
	}
	_, err := fmt.Fprintln(e.out, text)
	return err
}

// create returns a command that creates a resource from a file, or from the flags by template. finish then applies flags that
// are valid with both.
func (e *environment) create(k kind, template func(names []string, location string) (armclient.Resource, error), finish ...func(armclient.Resource) error) *cobra.Command {
	var file string
	c := e.operate(k, k.of("create"), "Create "+k.a(),
		func(ctx context.Context, client *armclient.Client, id string, names []string) (armclient.Operation, error) {
			location, err := e.location()
			if err != nil {
				return nil, err
			}
			body, err := template(names, location)
			if file != "" {
				body, err = readBody(file)
			}
			if err != nil {
				return nil, err
			}
			for _, finish := range finish {
				if err := finish(body); err != nil {
					return nil, err
				}
			}
			operation, err := client.Create(ctx, id, body)
			if armclient.IsPreconditionFailed(err) {
				return nil, fmt.Errorf("the %s %s exists and was not changed; %s", k.noun, names[len(names)-1], k.change)
			}
			return operation, err
		})
	c.Flags().StringVarP(&file, "file", "f", "", "`file` with the resource in YAML or JSON; replaces the other flags")
	return c
}

func (e *environment) delete(k kind, short string) *cobra.Command {
	return e.operate(k, k.of("delete"), short, func(ctx context.Context, client *armclient.Client, id string, names []string) (armclient.Operation, error) {
		operation, err := client.Delete(ctx, id)
		return operation, k.withList(names, err)
	})
}
