package command

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) accessRecordings() *cobra.Command {
	var cluster, session string
	c := view(e, &cobra.Command{Use: "recordings", Short: "List recordings of commands in pods",
		Example: `  hcpctl access recordings --cluster demo`,
		Long: `List the recordings of commands and attachments in access sessions of the last 90 days, newest first. The list has neither the commands nor what
they showed: 'hcpctl access recording ID' has both.`}, adminv1.ReadRecordings, func() adminclient.Query {
		return adminclient.Query{"cluster": cluster, "session": session}
	}, func(list *adminv1.RecordingList) error {
		return printList(e, list.Items, func(r adminv1.Recording) display.Row {
			return display.Row{{"ID", r.ID}, {"START", r.StartTime.Local().Format(time.DateTime)}, {"STATE", string(r.State())}, {"NAME", r.Name}, {"KIND", r.Kind}, {"POD", r.Namespace + "/" + r.Pod},
				{"CLUSTER", cmp.Or(r.Cluster.UID, r.Shard)}, {"SESSION", r.SessionID}, {"TICKET", r.Ticket}}
		})
	})
	c.Flags().StringVar(&cluster, "cluster", "", "only recordings of the cluster with an `identifier`")
	c.Flags().StringVar(&session, "session", "", "only recordings of the access session with an `ID`")
	return c
}

func (e *environment) accessRecording() *cobra.Command {
	var file string
	var unverified bool
	c := e.readCommand(&cobra.Command{Use: "recording ID", Short: "Show what an engineer typed into a command in a pod, and what it showed",
		Example: `  hcpctl access recording 2a6c1d0e-5b7f-4c3d-9e8f-0a1b2c3d4e5f
  hcpctl access recording 2a6c1d0e-5b7f-4c3d-9e8f-0a1b2c3d4e5f --file recording.cast`,
		Long: `Show a recording: one line for each event, with the seconds since the beginning. A recording may contain secrets. It requires the role
break-glass, and is audited. With --file, store it as an asciicast of version 2. A recording without a valid signature of the session gateway is refused:
it may be forged. With --unverified it is shown, and its title begins with NOT VERIFIED.`},
		func(ctx context.Context, client *adminclient.Client, args []string) error {
			described, err := adminclient.Get(ctx, client, adminv1.ReadRecording, nil, args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, adminv1.ReadRecordingContent.Timeout)
			defer cancel()
			if file != "" {
				err = e.storeRecording(ctx, client, args[0], unverified, file)
			} else {
				err = e.showRecording(ctx, client, args[0], unverified)
			}
			if err == nil && !described.Complete {
				fmt.Fprintf(e.err, "the recording has no end: it is %s\n", described.State())
			}
			return err
		})
	c.Flags().StringVarP(&file, "file", "f", "", "output `file` of the asciicast, which must not exist")
	c.Flags().BoolVar(&unverified, "unverified", false, "do not verify the signature: the recording may be forged")
	return c
}

// storeRecording writes the asciicast of a recording to a new file. After an error no file remains.
func (e *environment) storeRecording(ctx context.Context, client *adminclient.Client, id string, unverified bool, name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	err = client.CopyRecording(ctx, id, unverified, file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// showRecording prints the events of a recording. After an error, those before it are printed.
func (e *environment) showRecording(ctx context.Context, client *adminclient.Client, id string, unverified bool) error {
	content, writer := io.Pipe()
	go func() { writer.CloseWithError(client.CopyRecording(ctx, id, unverified, writer)) }()
	defer func() { _ = content.Close() }()
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, recording.MaxLine)
	for first := true; lines.Scan(); first = false {
		if first {
			header, err := recording.ParseHeader(lines.Bytes())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(e.out, "%s  %q\n", time.Unix(header.Timestamp, 0).UTC().Format(time.RFC3339), header.Title); err != nil {
				return err
			}
			continue
		}
		event, err := recording.ParseEvent(lines.Bytes())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(e.out, "%10.3f  %-7s  %q\n", event.Time.Seconds(), event.Code.Name(), event.Data); err != nil {
			return err
		}
	}
	return lines.Err()
}
