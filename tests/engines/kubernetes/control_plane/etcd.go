package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// newEtcdCommand returns a single-member etcd that never calls fsync: it holds a test's data, and a
// cluster of a test need not survive the machine.
func newEtcdCommand() *cobra.Command {
	var dataDir, clientURL, peerURL string
	command := &cobra.Command{
		Use:          "etcd",
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			return runEtcd(dataDir, clientURL, peerURL)
		},
	}
	command.Flags().StringVar(&dataDir, "data-dir", "", "where the data lies")
	command.Flags().StringVar(&clientURL, "listen-client-urls", "", "the URL that clients use")
	command.Flags().StringVar(&peerURL, "listen-peer-urls", "", "the URL for peers; nobody uses it")
	return command
}

func runEtcd(dataDir, clientURL, peerURL string) error {
	client, err := url.Parse(clientURL)
	if err != nil {
		return err
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = dataDir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return fmt.Errorf("etcd stopped by itself: %w", err)
	}
}
