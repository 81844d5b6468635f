// Package install installs charts of the repository in clusters with Helm's library, and brings them back to an earlier revision.
//
// Each revision has a label with the content of its release: the digest of the chart and its values. A release that is deployed with the
// same content is not changed. Install waits until all objects are ready, with watches, and ends when a new pod cannot start. If an upgrade fails
// or its objects are not ready in time, Install brings the release back to the revision that was deployed before. A call that was killed is repeated: it marks the revision
// that was left pending as failed and continues. Two calls for one release must not run at the same time.
package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/action"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
)

// Release is a chart with its values and its namespace. The release has the name of the chart.
type Release struct {
	Chart     *chart.Chart
	Namespace string
	// Values are a struct or a map.
	Values any
}

// Options are those of all functions that call a cluster.
type Options struct {
	Cluster *rest.Config
	// ReadyWithin is the time for each hook and for all objects to become ready. A rollback has the same time once more.
	ReadyWithin time.Duration
	// Log receives progress; nil discards it. It never gets values or manifests.
	Log io.Writer
}

// Result is the state of a release that is deployed and was ready.
type Result struct {
	// Content identifies the chart and its values.
	Content  string
	Revision int
	// Changed is false if the release was deployed with the same content before.
	Changed bool
}

// maxHistory is the number of revisions that are kept.
const maxHistory = 10

// succeeded is the description of a revision that was ready. Helm marks revisions as superseded that never were.
const succeeded = "was ready"

// contentLabel has the content of a revision.
const contentLabel = "hcpmesh-content"

// Content returns the digest of the chart's files and the values. It has the form of a label's value.
func Content(r Release) (string, error) {
	values, err := json.Marshal(r.Values)
	if err != nil {
		return "", fmt.Errorf("chart %s: values: %w", r.Chart.Name(), err)
	}
	sum := sha256.New224() // 56 digits; the value of a label has at most 63
	files := slices.SortedFunc(slices.Values(r.Chart.Files()), func(a, b *helmchart.File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		fmt.Fprintf(sum, "%q %d\n%s\n", f.Name, len(f.Data), f.Data)
	}
	fmt.Fprintf(sum, "%q\n%s", r.Namespace, values)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// installation is one call for one release.
type installation struct {
	ctx             context.Context
	options         Options
	config          *action.Configuration
	client          *client
	name, namespace string
}

func start(ctx context.Context, name, namespace string, o Options) (*installation, error) {
	if o.ReadyWithin <= 0 {
		return nil, errors.New("ready within: must be positive")
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	config, c, err := connect(ctx, namespace, o)
	if err != nil {
		return nil, fmt.Errorf("release %s: %w", name, err)
	}
	return &installation{ctx, o, config, c, name, namespace}, nil
}

func (i *installation) logf(format string, values ...any) {
	fmt.Fprintf(i.options.Log, "release "+i.name+": "+format+"\n", values...)
}

// Install installs or upgrades a release and waits until it is ready. The error contains a *NotReadyError if objects did not become ready.
// After an error of an upgrade, the release is back at the revision that was deployed before, unless the error says otherwise or ctx ended. A
// first installation that fails is left as it is.
func Install(ctx context.Context, r Release, o Options) (Result, error) {
	i, err := start(ctx, r.Chart.Name(), r.Namespace, o)
	if err != nil {
		return Result{}, err
	}
	content, err := Content(r)
	if err != nil {
		return Result{}, err
	}
	result, err := i.install(r, content)
	if err != nil {
		return Result{}, fmt.Errorf("release %s: %w", i.name, i.ended(err))
	}
	return result, nil
}

// ended returns the reason why the context ended instead of an error that follows from it.
func (i *installation) ended(err error) error {
	if i.ctx.Err() != nil {
		return context.Cause(i.ctx)
	}
	return err
}

func (i *installation) install(r Release, content string) (Result, error) {
	history, err := i.history()
	if err != nil {
		return Result{}, err
	}
	if len(history) == 0 {
		i.logf("installing revision 1")
		return i.first(r, content)
	}
	last := history[len(history)-1]
	if last.Info.Status == release.StatusDeployed && last.Labels[contentLabel] == content {
		i.logf("revision %d is deployed with the same content", last.Version)
		return Result{content, last.Version, false}, nil
	}
	stable := deployed(history)
	if stable != nil && last.Info.Status == release.StatusFailed && last.Labels[contentLabel] != content {
		// Objects that exist in the failed revision alone are deleted. The upgrade itself does not know them.
		i.logf("removing the failed revision %d", last.Version)
		if err := i.rollback(stable.Version, false); err != nil {
			return Result{}, fmt.Errorf("removing the failed revision %d: %w", last.Version, err)
		}
		if history, err = i.history(); err != nil {
			return Result{}, err
		}
		last = history[len(history)-1]
		stable = last
	}
	i.logf("upgrading to revision %d", last.Version+1)
	upgraded, err := i.upgrade(r, content)
	if err == nil {
		return Result{content, upgraded.Version, true}, nil
	}
	err = fmt.Errorf("upgrading to revision %d: %w", last.Version+1, err)
	if i.ctx.Err() != nil || stable == nil {
		return Result{}, err
	}
	return Result{}, i.restore(last, stable, err)
}

func (i *installation) first(r Release, content string) (Result, error) {
	values, err := r.Chart.PlainValues(r.Values)
	if err != nil {
		return Result{}, err
	}
	if err := i.define(r.Chart.Helm()); err != nil {
		return Result{}, err
	}
	run := action.NewInstall(i.config)
	run.ReleaseName, run.Namespace, run.Wait, run.WaitForJobs, run.Timeout, run.SkipCRDs = i.name, i.namespace, true, true, i.options.ReadyWithin, true
	run.Labels, run.Description = map[string]string{contentLabel: content}, succeeded
	installed, err := run.Run(r.Chart.Helm(), values)
	if err = i.client.cause(err); err != nil {
		return Result{}, fmt.Errorf("installing: %w", err)
	}
	return Result{content, installed.Version, true}, nil
}

func (i *installation) upgrade(r Release, content string) (*release.Release, error) {
	values, err := r.Chart.PlainValues(r.Values)
	if err != nil {
		return nil, err
	}
	if err := i.refuseReplacements(r); err != nil {
		return nil, err
	}
	if err := i.define(r.Chart.Helm()); err != nil {
		return nil, err
	}
	run := action.NewUpgrade(i.config)
	run.Namespace, run.Wait, run.WaitForJobs, run.Timeout, run.ResetValues, run.MaxHistory = i.namespace, true, true, i.options.ReadyWithin, true, maxHistory
	run.Labels, run.Description = map[string]string{contentLabel: content}, succeeded
	upgraded, err := run.Run(i.name, r.Chart.Helm(), values)
	return upgraded, i.client.cause(err)
}

// restore brings the release back to a revision after an upgrade from last failed. It does nothing if the upgrade changed nothing.
func (i *installation) restore(last, stable *release.Release, cause error) error {
	history, err := i.history()
	if err != nil {
		return fmt.Errorf("%w; reading the revisions for a rollback failed too: %w", cause, err)
	}
	if len(history) > 0 && history[len(history)-1].Version == last.Version {
		return fmt.Errorf("%w; nothing was changed", cause)
	}
	i.logf("rolling back to revision %d: %s", stable.Version, cause)
	if err := i.rollback(stable.Version, true); err != nil {
		return fmt.Errorf("%w; the rollback to revision %d failed too: %w", cause, stable.Version, i.ended(err))
	}
	return fmt.Errorf("%w; rolled back to revision %d", cause, stable.Version)
}

// rollback makes a new revision with the objects of an earlier one. The hooks are not run: a migration is not undone.
func (i *installation) rollback(revision int, wait bool) error {
	run := action.NewRollback(i.config)
	run.Version, run.Wait, run.WaitForJobs, run.Timeout, run.DisableHooks, run.MaxHistory = revision, wait, wait, i.options.ReadyWithin, true, maxHistory
	return i.client.cause(run.Run(i.name))
}

// Rollback brings a release back to the newest revision with a content that was deployed, and waits until it is ready. If the release is at
// this content, Rollback changes nothing.
func Rollback(ctx context.Context, name, namespace, content string, o Options) (Result, error) {
	i, err := start(ctx, name, namespace, o)
	if err != nil {
		return Result{}, err
	}
	result, err := i.rollbackTo(content)
	if err != nil {
		return Result{}, fmt.Errorf("release %s: %w", name, i.ended(err))
	}
	return result, nil
}

func (i *installation) rollbackTo(content string) (Result, error) {
	history, err := i.history()
	if err != nil {
		return Result{}, err
	}
	if len(history) == 0 {
		return Result{}, errors.New("is not installed")
	}
	last := history[len(history)-1]
	if last.Info.Status == release.StatusDeployed && last.Labels[contentLabel] == content {
		i.logf("revision %d is deployed with the content of the rollback", last.Version)
		return Result{content, last.Version, false}, nil
	}
	for _, revision := range slices.Backward(history) {
		if revision.Labels[contentLabel] != content || !wasDeployed(revision) {
			continue
		}
		i.logf("rolling back to revision %d", revision.Version)
		if err := i.rollback(revision.Version, true); err != nil {
			return Result{}, fmt.Errorf("rolling back to revision %d: %w", revision.Version, err)
		}
		return Result{content, last.Version + 1, true}, nil
	}
	return Result{}, fmt.Errorf("no revision with the content %s was deployed", content)
}

// history returns the revisions, the oldest first, after marking those that a killed call left pending as failed.
func (i *installation) history() ([]*release.Release, error) {
	history, err := i.config.Releases.History(i.name)
	if isNotInstalled(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading its revisions: %w", err)
	}
	slices.SortFunc(history, func(a, b *release.Release) int { return a.Version - b.Version })
	for _, revision := range history {
		switch {
		case revision.Info.Status.IsPending():
			i.logf("revision %d was interrupted", revision.Version)
			revision.SetStatus(release.StatusFailed, "interrupted")
			if err := i.config.Releases.Update(revision); err != nil {
				return nil, fmt.Errorf("marking the interrupted revision %d as failed: %w", revision.Version, err)
			}
		case revision.Info.Status == release.StatusUninstalling || revision.Info.Status == release.StatusUninstalled:
			return nil, fmt.Errorf("revision %d is %s: complete `helm uninstall` first", revision.Version, revision.Info.Status)
		}
	}
	return history, nil
}

func isNotInstalled(err error) bool { return errors.Is(err, driver.ErrReleaseNotFound) }

// deployed returns the revision that is deployed. A call that was killed between two writes can leave none; then it is the newest that was.
func deployed(history []*release.Release) *release.Release {
	var newest *release.Release
	for _, revision := range history {
		if revision.Info.Status == release.StatusDeployed || wasDeployed(revision) && (newest == nil || newest.Info.Status != release.StatusDeployed) {
			newest = revision
		}
	}
	return newest
}

// wasDeployed reports whether a revision was ready once. The description of a rollback names its revision until it fails.
func wasDeployed(revision *release.Release) bool {
	switch revision.Info.Status {
	case release.StatusDeployed:
		return true
	case release.StatusSuperseded:
		return revision.Info.Description == succeeded || strings.HasPrefix(revision.Info.Description, "Rollback to ")
	}
	return false
}
