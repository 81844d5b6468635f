package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclientv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// installCRDs applies the CRDs in the YAML files of a folder and waits until the API server serves them. It retries while the API
// server cannot be reached or refuses the agent.
func installCRDs(ctx context.Context, config *rest.Config, dir string, log *slog.Logger) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no CRD in %s", dir)
	}
	sort.Strings(files)
	client, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client of the management cluster: %w", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return fmt.Errorf("reading CRD %s: %w", filepath.Base(file), err)
		}
		body, err := yaml.YAMLToJSON(text)
		if err != nil {
			return fmt.Errorf("reading CRD %s: %w", filepath.Base(file), err)
		}
		if err := installCRD(ctx, crds, crd.Name, body, log); err != nil {
			return fmt.Errorf("installing CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// installCRD applies a CRD and waits until the API server serves it. Forbidden is retried too: an API server that has just started
// answers so until it has read the roles.
func installCRD(ctx context.Context, crds apiextensionsclientv1.CustomResourceDefinitionInterface, name string, body []byte, log *slog.Logger) error {
	force, pauses := true, backoff.New(200*time.Millisecond, 10*time.Second)
	for {
		applied, err := crds.Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "maestro-agent", Force: &force})
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return err
		case err != nil:
			log.WarnContext(ctx, "installing a CRD failed", logkey.Name, name, logkey.Error, err)
		case slices.ContainsFunc(applied.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}):
			return nil
		}
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}
