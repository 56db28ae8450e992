// The reference implementations at our Workload API: go-spiffe, and the commands of the SPIRE agent that ask a Workload API.
// Prints one line of JSON for each thing that the test looks at. Ends when standard input does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"github.com/spiffe/spire/cmd/spire-agent/cli/api"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: isthmus-peer-spiffe watch|jwt|bundle|serve|dial|spire ..."))
	}
	arguments := os.Args[2:]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch os.Args[1] {
	case "watch":
		check(watch(ctx))
	case "jwt":
		check(jwt(ctx, arguments))
	case "bundle":
		check(bundle(arguments))
	case "serve":
		check(serve(ctx))
	case "dial":
		check(dial(ctx, arguments))
	case "spire":
		os.Exit(spire(arguments))
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func say(value any) {
	line, err := json.Marshal(value)
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

func untilStdinEnds() {
	_, _ = io.Copy(io.Discard, os.Stdin)
}

type watcher struct{}

func (watcher) OnX509ContextUpdate(update *workloadapi.X509Context) {
	ids, hints, serials, roots := []string{}, []string{}, []string{}, map[string]int{}
	for _, svid := range update.SVIDs {
		ids = append(ids, svid.ID.String())
		hints = append(hints, svid.Hint)
		serials = append(serials, svid.Certificates[0].SerialNumber.Text(16))
	}
	for _, bundle := range update.Bundles.Bundles() {
		roots[bundle.TrustDomain().Name()] = len(bundle.X509Authorities())
	}
	say(map[string]any{"ids": ids, "hints": hints, "serials": serials, "roots": roots})
}

func (watcher) OnX509ContextWatchError(err error) {
	say(map[string]any{"error": err.Error()})
}

// Every update of the X.509 context, as the library's watcher sees it.
func watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		untilStdinEnds()
		cancel()
	}()
	err := workloadapi.WatchX509Context(ctx, watcher{})
	if errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return nil
	}
	return err
}

// A JWT-SVID, checked by the library with the bundle it fetched, and by the Workload API.
func jwt(ctx context.Context, arguments []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	source, err := workloadapi.NewJWTSource(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	svid, err := source.FetchJWTSVID(ctx, jwtsvid.Params{Audience: arguments[0], ExtraAudiences: arguments[1:]})
	if err != nil {
		return err
	}
	local, err := jwtsvid.ParseAndValidate(svid.Marshal(), source, []string{arguments[0]})
	if err != nil {
		return fmt.Errorf("go-spiffe refuses our token: %w", err)
	}
	remote, err := workloadapi.ValidateJWTSVID(ctx, svid.Marshal(), arguments[0])
	if err != nil {
		return fmt.Errorf("we refuse our token: %w", err)
	}
	_, wrong := workloadapi.ValidateJWTSVID(ctx, svid.Marshal(), "somebody-else")
	say(map[string]any{
		"local": local.ID.String(), "remote": remote.ID.String(), "audience": local.Audience,
		"wrong_audience_refused": wrong != nil,
	})
	return nil
}

// A bundle document read from a file.
func bundle(arguments []string) error {
	domain, err := spiffeid.TrustDomainFromString(arguments[0])
	if err != nil {
		return err
	}
	bundle, err := spiffebundle.Load(domain, arguments[1])
	if err != nil {
		return err
	}
	sequence, _ := bundle.SequenceNumber()
	hint, _ := bundle.RefreshHint()
	say(map[string]any{
		"x509": len(bundle.X509Authorities()), "jwt": len(bundle.JWTAuthorities()),
		"sequence": sequence, "refresh_hint": hint.Seconds(),
	})
	return nil
}

// A TLS server that greets its client by ID. Its first line of output is its address.
func serve(ctx context.Context) error {
	source, err := workloadapi.NewX509Source(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	mode := spiffetls.MTLSServerWithSource(tlsconfig.AuthorizeAny(), source)
	listener, err := spiffetls.ListenWithMode(ctx, "tcp", "127.0.0.1:0", mode)
	if err != nil {
		return err
	}
	defer listener.Close()
	say(map[string]any{"address": listener.Addr().String()})
	go greet(listener)
	untilStdinEnds()
	return nil
}

func greet(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		// The handshake happens at the first byte, and only then is the peer known.
		if _, err = connection.Read(make([]byte, 1)); err != nil {
			say(map[string]any{"refused": err.Error()})
			_ = connection.Close()
			continue
		}
		id, err := spiffetls.PeerIDFromConn(connection)
		if err != nil {
			say(map[string]any{"refused": err.Error()})
		} else {
			say(map[string]any{"client": id.String()})
			_, _ = io.WriteString(connection, id.String())
		}
		_ = connection.Close()
	}
}

// A TLS client that expects its server to have an ID, sends a byte, and prints what it is told.
func dial(ctx context.Context, arguments []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	id, err := spiffeid.FromString(arguments[1])
	if err != nil {
		return err
	}
	source, err := workloadapi.NewX509Source(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	mode := spiffetls.MTLSClientWithSource(tlsconfig.AuthorizeID(id), source)
	connection, err := spiffetls.DialWithMode(ctx, "tcp", arguments[0], mode)
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err = connection.Write([]byte{0}); err != nil {
		return err
	}
	answer, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	say(map[string]any{"server_said": string(answer)})
	return nil
}

// `spire-agent api ...`, the very commands.
func spire(arguments []string) int {
	if len(arguments) == 0 {
		fail(errors.New("usage: spire fetch-x509|fetch-jwt|watch|validate-jwt ..."))
	}
	switch arguments[0] {
	case "fetch-x509":
		return api.NewFetchX509Command().Run(arguments[1:])
	case "fetch-jwt":
		return api.NewFetchJWTCommand().Run(arguments[1:])
	case "validate-jwt":
		return api.NewValidateJWTCommand().Run(arguments[1:])
	case "watch":
		command := &api.WatchCLI{}
		return command.Run(arguments[1:])
	}
	fail(fmt.Errorf("unknown command %q", arguments[0]))
	return 2
}
