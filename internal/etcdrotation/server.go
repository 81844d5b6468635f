package etcdrotation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Server is a Kubernetes API server.
type Server struct {
	// URL is its address, without a trailing slash.
	URL string
	// HTTP authenticates as an administrator.
	HTTP *http.Client
}

const (
	// listPage is the number of objects in a page of a list.
	listPage = 250
	// maxResponse bounds a response of the API server, in bytes. Lists have only metadata.
	maxResponse = 64 << 20

	configurationMetric = "apiserver_encryption_config_controller_last_config_info"
	startMetric         = "process_start_time_seconds"

	metadataOnly     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	listMetadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// configuration identifies the encryption configuration that a process of an API server has loaded.
type configuration struct {
	hash string
	// started is the time at which the process started. A process that started later has loaded the configuration again.
	started float64
}

// loaded returns the configuration that the API server uses.
func (s *Server) loaded(ctx context.Context) (configuration, error) {
	response, err := s.send(ctx, http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return configuration{}, err
	}
	defer func() { _ = response.Body.Close() }()
	// An API server has thousands of metrics. Only those two are parsed.
	var text bytes.Buffer
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, configurationMetric+"{") || strings.HasPrefix(line, startMetric+" ") {
			text.WriteString(line + "\n")
		}
	}
	if err := lines.Err(); err != nil {
		return configuration{}, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		return configuration{}, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	var found configuration
	for _, metric := range families[configurationMetric].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "hash" {
				found.hash = label.GetValue()
			}
		}
	}
	for _, metric := range families[startMetric].GetMetric() {
		found.started = metric.GetUntyped().GetValue()
	}
	if found.hash == "" || found.started == 0 {
		return configuration{}, errors.New("the API server does not report its encryption configuration")
	}
	return found, nil
}

// objectList is a page of a list of objects with their metadata.
type objectList struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []struct {
		Metadata objectMeta `json:"metadata"`
	} `json:"items"`
}

type objectMeta struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
}

// rewrite has the API server write all objects of a namespaced resource, NAME or NAME.GROUP, that it stored with another key than the one for encryption. It
// changes nothing in the objects: an API server writes an unchanged object if its value in etcd is not what it would write now. It calls
// note with the number of objects after each page. An object that was changed or deleted since it was listed needs nothing.
func (s *Server) rewrite(ctx context.Context, resource string, note func(int)) error {
	plural, group, _ := strings.Cut(resource, ".")
	base, err := s.path(ctx, group)
	if err != nil || base == "" {
		return err
	}
	for next := ""; ; {
		query := url.Values{"limit": {strconv.Itoa(listPage)}}
		if next != "" {
			query.Set("continue", next)
		}
		var page objectList
		if err := s.call(ctx, http.MethodGet, base+"/"+plural+"?"+query.Encode(), listMetadataOnly, nil, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			o := item.Metadata
			patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": o.ResourceVersion}})
			if err != nil {
				return err
			}
			err = s.call(ctx, http.MethodPatch, base+"/namespaces/"+url.PathEscape(o.Namespace)+"/"+plural+"/"+url.PathEscape(o.Name), metadataOnly, patch, nil)
			if err != nil && !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusNotFound) {
				return err
			}
		}
		note(len(page.Items))
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// path returns the path of the preferred version of an API group. It is empty if the API server does not have the group.
func (s *Server) path(ctx context.Context, group string) (string, error) {
	if group == "" {
		return "/api/v1", nil
	}
	var found struct {
		PreferredVersion struct {
			GroupVersion string `json:"groupVersion"`
		} `json:"preferredVersion"`
	}
	err := s.call(ctx, http.MethodGet, "/apis/"+url.PathEscape(group), "application/json", nil, &found)
	if isStatus(err, http.StatusNotFound) {
		return "", nil
	}
	if err == nil && found.PreferredVersion.GroupVersion == "" {
		err = fmt.Errorf("the API server does not report the version of the group %s", group)
	}
	return "/apis/" + found.PreferredVersion.GroupVersion, err
}

// statusError is an answer with another status than 200.
type statusError struct {
	method, path string
	code         int
	message      string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.code, e.message)
}

func isStatus(err error, code int) bool {
	var answer *statusError
	return errors.As(err, &answer) && answer.code == code
}

// send sends a request. The caller must close the body of the response, which has the status 200.
func (s *Server) send(ctx context.Context, method, path, accept string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := s.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	var status struct {
		Message string `json:"message"`
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	_ = json.Unmarshal(text, &status) // a proxy may answer otherwise
	path, _, _ = strings.Cut(path, "?")
	return nil, &statusError{method, path, response.StatusCode, status.Message}
}

// call sends a request and decodes the answer, unless into is nil.
func (s *Server) call(ctx context.Context, method, path, accept string, body []byte, into any) error {
	response, err := s.send(ctx, method, path, accept, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not valid", method, path) // the error could quote the content of a Secret
	}
	return nil
}
