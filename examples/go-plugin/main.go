// A plugin in Go: runs scripts as processes of this machine, in a directory that holds all it must know.
//
// It shows the whole of what a plugin does (the calls, the token, registration, heartbeats, leaving without failing a
// call) in a language that is not the platform's. See plugin.toml for what it can and cannot do.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"flag"
	"log"
	"math/big"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

const (
	drainWithin  = 30 * time.Second
	messageBytes = 64 << 20
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "run" {
		if err := runAllocation(os.Args[2]); err != nil {
			log.Fatal(err)
		}
		return
	}
	listen := flag.String("listen", "127.0.0.1:0", "host:port (0: any that is free) or unix:/path")
	announce := flag.String("announce", "", "write address, certificate and token to this file, for callers by hand")
	flag.Parse()
	if err := serve(*listen, *announce); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, announce string) error {
	manifest, err := readManifest()
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(manifest.Limits.MemoryMib << 20)
	announcement := Announcement{Manifest: manifest, Token: os.Getenv("YUNHE_PLUGIN_TOKEN")}
	if announcement.Token == "" {
		random := make([]byte, 32)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		announcement.Token = hex.EncodeToString(random)
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(messageBytes), grpc.MaxSendMsgSize(messageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	network, address := "tcp", listen
	if path, over := strings.CutPrefix(listen, "unix:"); over {
		network, address = "unix", path
	} else {
		certificate, text, err := newCertificate()
		if err != nil {
			return err
		}
		announcement.Certificate = text
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(certificate)))
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	announcement.Address = listen
	if network == "tcp" {
		announcement.Address = listener.Addr().String()
	}
	plugin := newServer(manifest, announcement.Token)
	server := grpc.NewServer(append(options, grpc.UnaryInterceptor(plugin.unary), grpc.StreamInterceptor(plugin.stream))...)
	plugin.register(server)
	healthy := health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, healthy)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if announce != "" {
		if err := writeJSON(announce, announcement); err != nil {
			return err
		}
	}
	log.Printf("serving %s %s at %s", manifest.Name, manifest.Version, announcement.Address)
	if err := untilToldToEnd(announcement, failed); err != nil {
		return err
	}
	healthy.Shutdown()
	drain(plugin, server)
	return nil
}

// untilToldToEnd returns when another instance has taken over, or after the platform knows that this one goes.
func untilToldToEnd(announcement Announcement, failed <-chan error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	superseded := make(chan struct{})
	var registration *Registration
	if os.Getenv("YUNHE_URL") != "" {
		var err error
		if registration, err = newRegistration(announcement); err != nil {
			return err
		}
		go func() {
			registration.untilSuperseded(ctx)
			if ctx.Err() == nil {
				close(superseded)
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-superseded:
		log.Print("another instance has taken over")
	case <-ctx.Done():
		if registration != nil {
			registration.sayGoodbye()
		}
	}
	return nil
}

// drain takes no new call, sends those that only wait to the next instance, and lets the others end.
func drain(plugin *Server, server *grpc.Server) {
	close(plugin.leaving)
	timer := time.AfterFunc(drainWithin, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}

// newCertificate makes one that is signed by itself; the platform pins it.
func newCertificate() (*tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "yunhe-plugin"}, DNSNames: []string{"yunhe-plugin"},
		NotBefore: now.AddDate(0, 0, -1), NotAfter: now.AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, "", err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(text), nil
}
