package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// sessionEndTimeout limits the end of a session after its command has ended.
const sessionEndTimeout = 30 * time.Second

func (e *environment) accessOpen() *cobra.Command {
	return e.sessionCommand(adminv1.ActionAccessSessionRequest, func(args []string) (cluster string) { return args[0] }, &cobra.Command{
		Use: "open CLUSTER [-- COMMAND ARGUMENTS]", Short: "Open a session for the API server of a cluster", Args: objectBeforeCommand(1),
		Example: `  hcpctl access open demo --reason "pods are pending" --ticket INC-42 -- kubectl get pods -A
  hcpctl access open demo --mode admin --reason "a pod hangs" --ticket INC-42 -- kubectl exec -it POD -- sh`,
		Long: `Open a session for the API server of a cluster at the session gateway. The mode read requires the role operator, the mode admin the
role break-glass.

With a command, run it with a kubeconfig of the session in KUBECONFIG, and end the session afterwards:

    hcpctl access open CLUSTER --reason TEXT --ticket ID -- kubectl get pods -A

With --file, add a context to a kubeconfig, which keeps its others; --overwrite replaces the whole file. The session ends when its certificate expires, after at most 15 minutes. The kubeconfig contains no secret:
kubectl calls 'hcpctl access token', and the gateway accepts only your token. The mode read permits to read everything but secrets, and logs
of pods. It has no commands in pods and no port forwarding. The mode admin permits everything. With --reason and --ticket the command creates
an elevation for the cluster, waits for its approval if the access policy requires one, and ends it with the session.`,
	})
}

// managementCluster returns the commands for management clusters.
func (e *environment) managementCluster() *cobra.Command {
	return group("mc", "Open sessions for API servers of management clusters", e.sessionCommand(adminv1.ActionShardSessionRequest, wholeRegion, &cobra.Command{
		Use: "access SHARD [-- COMMAND ARGUMENTS]", Short: "Open a session for the API server of a management cluster", Args: objectBeforeCommand(1),
		Example: `  hcpctl mc access mgmt-1 --reason "works are not applied" --ticket INC-42 -- kubectl get hostedclusters -A
  hcpctl mc access mgmt-1 --mode admin --reason "an operator hangs" --ticket INC-42 -- kubectl -n hypershift delete pod POD`,
		Long: `Open a session for the API server of the management cluster of a provision shard at the session gateway. The command works like
'hcpctl access open', with these differences: the elevation is for the whole region, because a management cluster hosts clusters of many
customers; and the agent on the management cluster verifies your request and issues a token, which only the gateway gets. The mode read
permits to read everything but Secrets. The mode admin permits everything.`,
	}))
}

// serviceCluster returns the commands for the service cluster.
func (e *environment) serviceCluster() *cobra.Command {
	return group("sc", "Open sessions for the API server of the service cluster", e.sessionCommand(adminv1.ActionServiceClusterSessionRequest, wholeRegion, &cobra.Command{
		Use: "access [-- COMMAND ARGUMENTS]", Short: "Open a session for the API server of the service cluster", Args: objectBeforeCommand(0),
		Example: `  hcpctl sc access --reason "the backend restarts" --ticket INC-42 -- kubectl -n backend get pods
  hcpctl sc access --mode admin --reason "a pod hangs" --ticket INC-42 -- kubectl -n backend delete pod POD`,
		Long: `Open a session for the API server of the service cluster of the region at the session gateway. The command works like 'hcpctl mc access':
the elevation is for the whole region, and the program gateway-grants in the service cluster verifies your request and issues a token, which
only the gateway gets. The mode read permits to read everything but Secrets. The mode admin permits everything. A region on one machine has no
service cluster.`,
	}))
}

// wholeRegion is the clusterOf of sessions that need an elevation for the whole region.
func wholeRegion([]string) (cluster string) { return "" }

// sessionCommand completes a command that opens a session for the object in the path of an action, which its first arguments name. clusterOf returns the
// cluster that the elevation is limited to; empty means the whole region.
func (e *environment) sessionCommand(action string, clusterOf func(args []string) (cluster string), c *cobra.Command) *cobra.Command {
	objectArgs := len(adminv1.Wildcards(adminv1.FindAction(action).Path))
	var mode string
	var target kubeconfigTarget
	var duration time.Duration
	var why justification
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		switch {
		case (target.file == "") == (len(args) == objectArgs):
			return errors.New("either --file or a command after -- is required")
		case adminv1.AccessMode(mode).Level() == "":
			return fmt.Errorf("--mode: %q is not supported; supported modes: %v", mode, adminv1.AccessModes())
		}
		return nil
	}
	c.RunE = with(e.adminClient, func(ctx context.Context, client *adminclient.Client, args []string) error {
		elevation, err := e.elevateFor(ctx, client, adminv1.AccessMode(mode).Level().Class(), clusterOf(args), why, duration+signingTime)
		if err != nil {
			return err
		}
		asked := adminv1.AccessSessionRequest{Mode: adminv1.AccessMode(mode), Duration: duration.String()}
		err = e.withSession(ctx, client, action, args[:objectArgs], args[objectArgs:], target, asked)
		switch {
		case elevation == nil:
		case err != nil || target.file == "":
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionEndTimeout)
			defer cancel()
			e.endElevation(ending, client, elevation)
		default:
			e.printElevationLasts(elevation)
		}
		return err
	})
	c.Flags().StringVar(&mode, "mode", string(adminv1.AccessRead), "`mode` of the session: read or admin")
	target.add(c, "output `file` of the kubeconfig")
	c.Flags().DurationVar(&duration, "for", 15*time.Minute, "`duration` of the session, 10m to 15m")
	why.add(c)
	return e.addAdminFlags(c)
}

// objectBeforeCommand returns the check of the arguments of a command that runs another one: a number of arguments before `--`.
func objectBeforeCommand(objects int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if dash := c.ArgsLenAtDash(); dash >= 0 {
			args = args[:dash]
			return cobra.ExactArgs(objects)(c, args)
		}
		return cobra.MinimumNArgs(objects)(c, args)
	}
}

// withSession opens a session for an object, and writes its kubeconfig to a file, or runs a command with it and ends the session.
func (e *environment) withSession(ctx context.Context, client *adminclient.Client, action string, object, program []string, target kubeconfigTarget, asked adminv1.AccessSessionRequest) error {
	opening, cancel := context.WithTimeout(ctx, credentialTimeout)
	defer cancel()
	session, err := client.OpenSession(opening, action, asked, object...)
	if err != nil {
		return err
	}
	kubeconfig, err := e.sessionKubeconfig(session)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.err, "session %s is open until %s\n", session.ID, session.ExpirationTime.Local().Format(time.TimeOnly))
	if target.file != "" {
		name := cmp.Or(session.Cluster.UID, session.Shard)
		return e.writeKubeconfig(ctx, target, name, name, kubeconfig)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionEndTimeout)
		defer cancel()
		if _, err := client.EndAccessSession(ending, session.ID); err != nil {
			fmt.Fprintf(e.err, "warning: the session %s was not ended: %v\n", session.ID, err)
		}
	}()
	folder, err := os.MkdirTemp("", "hcpctl-session-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program[0], program[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, e.out, e.err
	command.Env = append(os.Environ(), "KUBECONFIG="+path)
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", program[0], err)
	}
	return nil
}

// sessionKubeconfig returns the kubeconfig of a session. It contains no secret.
func (e *environment) sessionKubeconfig(session *adminv1.AccessSession) ([]byte, error) {
	var authority []byte
	if e.admin.Audience == "" { // a local region has an authority of its own
		endpoints, err := e.endpoints()
		if err != nil {
			return nil, err
		}
		if authority, err = os.ReadFile(endpoints.CAFile); err != nil {
			return nil, err
		}
	}
	return e.pluginKubeconfig(cmp.Or(session.Cluster.UID, session.Shard), session.URL, authority, e.hostedProxy(e.admin.Endpoint), "access", "token")
}

func (e *environment) accessToken() *cobra.Command {
	return e.readCommand(&cobra.Command{
		Use: "token", Short: "Print your token for kubectl",
		Example: `  hcpctl access token`,
		Long: `Print your token in the form of kubectl's credential plugins. The kubeconfig of 'hcpctl access open' calls this command. The output is a
secret that is valid for admin and the session gateway until it expires.`,
	}, func(ctx context.Context, client *adminclient.Client, _ []string) error {
		token, err := client.Token(ctx)
		if err != nil {
			return err
		}
		content, err := credential.ExecCredential(token.ExpiresOn, map[string]any{"token": token.Token})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, string(content))
		return err
	})
}

func (e *environment) accessSessions() *cobra.Command {
	var cluster, shard string
	var all bool
	c := view(e, &cobra.Command{Use: "sessions", Short: "List open sessions for API servers",
		Example: `  hcpctl access sessions --cluster demo --all`}, adminv1.ReadAccessSessions, func() adminclient.Query {
		return adminclient.Query{"cluster": cluster, "shard": shard, "open": !all}
	}, func(list *adminv1.AccessSessionList) error {
		if err := printList(e, list.Items, sessionRow); err != nil || e.output != "table" {
			return err
		}
		return e.printObjects(list.Items)
	})
	c.Flags().StringVar(&cluster, "cluster", "", "only sessions of the cluster with an `identifier`")
	c.Flags().StringVar(&shard, "shard", "", "only sessions of the management cluster of a provision `shard`, or of service-cluster")
	c.MarkFlagsMutuallyExclusive("cluster", "shard")
	c.Flags().BoolVarP(&all, "all", "A", false, "include sessions of the last 30 days that have ended")
	return c
}

func sessionRow(s adminv1.AccessSession) display.Row {
	until := ""
	if end := cmp.Or(s.EndTime, s.ExpirationTime); end != nil {
		until = end.Local().Format(time.DateTime)
	}
	return display.Row{{"ID", s.ID}, {"STATE", string(s.State)}, {"NAME", s.Name}, {"MODE", string(s.Mode)}, {"CLUSTER", cmp.Or(s.Cluster.UID, s.Shard)}, {"UNTIL", until}, {"TICKET", s.Ticket}, {"REASON", s.Reason}}
}

// printObjects prints what sessions have created or changed that gives access, if there is something.
func (e *environment) printObjects(sessions []adminv1.AccessSession) error {
	var rows [][]string
	for _, s := range sessions {
		for _, o := range s.Objects {
			rows = append(rows, []string{s.ID, o.Verb, o.Kind, o.Namespace, o.Name, cmp.Or(o.Outcome, "not known yet"), o.Reason})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(e.out, "\nObjects that give access:"); err != nil {
		return err
	}
	return display.Table(e.out, []string{"SESSION", "VERB", "KIND", "NAMESPACE", "NAME", "OUTCOME", "WHY"}, rows)
}

func (e *environment) accessClose() *cobra.Command {
	return answer(e, &cobra.Command{Use: "close ID", Short: "End a session for an API server",
		Example: `  hcpctl access close 2a6c1d0e-5b7f-4c3d-9e8f-0a1b2c3d4e5f`,
		Long:    `End a session: the session gateway closes its connections. Engineers end their own sessions, and the role break-glass those of others.`},
		func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.AccessSession, error) {
			return client.EndAccessSession(ctx, args[0])
		}, asTable(e, func(session *adminv1.AccessSession) error {
			_, err := fmt.Fprintf(e.out, "session %s of %s has ended\n", session.ID, session.Name)
			return err
		}))
}
