package stubkubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logLine is a line of a log without its newline.
type logLine struct {
	time time.Time
	text string
}

// logLines returns the log of a container. It depends only on the pod. The lines are one second apart, from the creation of the pod.
func logLines(object *corev1.Pod, container *corev1.Container) []logLine {
	ports := "none"
	if declared := declaredPorts(object); len(declared) > 0 {
		ports = strings.Join(declared, ", ")
	}
	texts := []string{
		fmt.Sprintf("hcpmesh: pod %s/%s is simulated: no container runs, and this text takes the place of its log", object.Namespace, object.Name),
		"hcpmesh: node " + object.Spec.NodeName,
		"hcpmesh: container " + container.Name,
		"hcpmesh: image " + container.Image,
		"hcpmesh: TCP ports that respond to port-forward: " + ports,
		"hcpmesh: commands for exec: " + strings.Join(commandNames(), " "),
	}
	lines := make([]logLine, len(texts))
	for i, text := range texts {
		lines[i] = logLine{object.CreationTimestamp.Add(time.Duration(i) * time.Second).UTC(), text}
	}
	return lines
}

// logOptions are the options of a request for a log. They are those of corev1.PodLogOptions.
type logOptions struct {
	follow, previous, timestamps, empty bool
	tail, limit                         int64 // negative for none
	since                               time.Time
}

// parseLogOptions parses the query that an API server sends. now is the time from which sinceSeconds is counted.
func parseLogOptions(query url.Values, now time.Time) (o logOptions, err error) {
	o.tail, o.limit = -1, -1
	number := func(name string, minimum int64, into *int64) {
		text := query.Get(name)
		if text == "" || err != nil {
			return
		}
		value, parsed := strconv.ParseInt(text, 10, 64)
		if parsed != nil || value < minimum {
			err = &refusal{http.StatusBadRequest, fmt.Sprintf("%s: %q is not a number of at least %d", name, text, minimum)}
			return
		}
		*into = value
	}
	boolean := func(name string, into *bool) {
		text := query.Get(name)
		if text == "" || err != nil {
			return
		}
		value, parsed := strconv.ParseBool(text)
		if parsed != nil {
			err = &refusal{http.StatusBadRequest, fmt.Sprintf("%s: %q is neither true nor false", name, text)}
			return
		}
		*into = value
	}
	boolean("follow", &o.follow)
	boolean("previous", &o.previous)
	boolean("timestamps", &o.timestamps)
	number("tailLines", 0, &o.tail)
	number("limitBytes", 1, &o.limit)
	var seconds int64
	number("sinceSeconds", 1, &seconds)
	if seconds > 0 {
		o.since = now.Add(-time.Duration(min(seconds, 1<<32)) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" && err == nil {
		if o.since, err = time.Parse(time.RFC3339, text); err != nil {
			err = &refusal{http.StatusBadRequest, fmt.Sprintf("sinceTime: %q is not a time of RFC 3339", text)}
		}
	}
	switch text := query.Get("stream"); text {
	case "", corev1.LogStreamAll, corev1.LogStreamStdout:
	case corev1.LogStreamStderr:
		o.empty = true
	default:
		if err == nil {
			err = &refusal{http.StatusBadRequest, fmt.Sprintf("stream: %q is none of All, Stdout and Stderr", text)}
		}
	}
	return o, err
}

// render returns the selected lines as text.
func (o *logOptions) render(lines []logLine) string {
	if o.empty {
		return ""
	}
	first := 0
	for first < len(lines) && lines[first].time.Before(o.since) {
		first++
	}
	lines = lines[first:]
	if o.tail >= 0 && int64(len(lines)) > o.tail {
		lines = lines[int64(len(lines))-o.tail:]
	}
	var text strings.Builder
	for _, line := range lines {
		if o.timestamps {
			text.WriteString(line.time.Format(metav1.RFC3339Micro) + " ")
		}
		text.WriteString(line.text + "\n")
	}
	if o.limit >= 0 && int64(text.Len()) > o.limit {
		return text.String()[:o.limit]
	}
	return text.String()
}

// serveLogs writes the log of a container. With follow, it waits for the end of the pod, because a simulated container writes nothing more.
func serveLogs(ctx context.Context, st *stream, w http.ResponseWriter, r *http.Request) {
	options, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		writeError(w, err)
		return
	}
	if options.previous {
		writeError(w, &refusal{http.StatusBadRequest, fmt.Sprintf("previous terminated container %q in pod %q not found", st.container.Name, st.object.Name)})
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	if _, err := io.WriteString(w, options.render(logLines(st.object, st.container))); err != nil || !options.follow {
		return
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	<-ctx.Done()
}
