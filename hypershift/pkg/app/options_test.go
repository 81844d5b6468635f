package app

import (
	"flag"
	"io"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	process := " --kube-apiserver=a --etcd-servers=b --state-dir=c"
	cases := map[string]struct{ reason, args, names string }{
		"Status":          {"status needs nothing but a cluster", "--kubeconfig=k --fidelity=status", ""},
		"Process":         {"the default", "--kubeconfig=k" + process, ""},
		"NoKubeconfig":    {"there is no default", "--fidelity=status", "--kubeconfig"},
		"ProcessWithout":  {"the default needs programs", "--kubeconfig=k", "--kube-apiserver"},
		"Half":            {"some of what a process needs is none", "--kubeconfig=k --fidelity=status --state-dir=c", "--etcd-servers"},
		"BadFidelity":     {"there are two", "--kubeconfig=k --fidelity=perfect", "--fidelity"},
		"NegativeTime":    {"time does not run backwards", "--kubeconfig=k --fidelity=status --time-scale=-1", "--time-scale"},
		"BadPorts":        {"a range has two ends", "--kubeconfig=k --hosted-ports=7", "hosted-ports"},
		"UnknownFlag":     {"a typo is not ignored", "--kubeconfig=k --fidelty=status", "fidelty"},
		"NoStartsAllowed": {"nothing would ever start", "--kubeconfig=k --concurrent-starts=0" + process, "--concurrent-starts"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var options Options
			flags := flag.NewFlagSet("test", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			options.AddFlags(flags)
			err := flags.Parse(strings.Fields(c.args))
			if err == nil {
				err = options.Validate()
			}
			if c.names == "" && err != nil || c.names != "" && (err == nil || !strings.Contains(err.Error(), c.names)) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}
