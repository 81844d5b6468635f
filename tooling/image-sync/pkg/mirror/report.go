package mirror

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
)

// State is the outcome for an image.
type State string

// The states.
const (
	// Copied means that the target had no such image before and has it now.
	Copied State = "copied"
	// Present means that the target had the image with everything that belongs to it.
	Present State = "present"
	// Missing means that the target does not have the image and that a dry run would have copied it.
	Missing State = "missing"
	// Withheld means that the image could be copied, but another image of its release could not.
	Withheld State = "withheld"
	// Failed means that the target does not have the image.
	Failed State = "failed"
)

// Image is the outcome for one image.
type Image struct {
	// Release is the release image to which a component belongs; empty for single images.
	Release string `json:"release,omitempty"`
	// Name is the name of the component, or of the kind of image: release, image or attached.
	Name   string `json:"name"`
	Source string `json:"source"`
	Target string `json:"target,omitempty"`
	State  State  `json:"state"`
	Cause  string `json:"cause,omitempty"`
	// Err is the error behind Cause, for programs that decide by its kind whether to repeat a run. It is nil unless the state is failed.
	Err error `json:"-"`
}

// Report is the outcome of a run. It is safe for concurrent use.
type Report struct {
	mu sync.Mutex
	// The numbers are those of blobs that were copied or were there before, and the bytes of the copied ones.
	Blobs struct {
		Copied  int   `json:"copied"`
		Present int   `json:"present"`
		Bytes   int64 `json:"bytes"`
	} `json:"blobs"`
	Images []Image `json:"images"`
}

// Add adds an image.
func (r *Report) Add(image Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Images = append(r.Images, image)
}

// AddBlob counts a blob.
func (r *Report) AddBlob(copied bool, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !copied {
		r.Blobs.Present++
		return
	}
	r.Blobs.Copied++
	r.Blobs.Bytes += size
}

// Count returns the number of images in a state.
func (r *Report) Count(state State) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, image := range r.Images {
		if image.State == state {
			n++
		}
	}
	return n
}

// JSON writes the report as JSON.
func (r *Report) JSON(out io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Table writes the report as a table with a line of sums.
func (r *Report) Table(out io.Writer) error {
	r.mu.Lock()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STATE\tNAME\tSOURCE\tCAUSE")
	for _, image := range r.Images {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", image.State, image.Name, image.Source, strings.Join(strings.Fields(image.Cause), " "))
	}
	err := table.Flush()
	blobs := r.Blobs
	r.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d copied, %d present, %d missing, %d withheld, %d failed; blobs: %d copied (%d bytes), %d present\n",
		r.Count(Copied), r.Count(Present), r.Count(Missing), r.Count(Withheld), r.Count(Failed), blobs.Copied, blobs.Bytes, blobs.Present)
	return err
}
