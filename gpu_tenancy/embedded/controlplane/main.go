// Command controlplane is a whole Kubernetes control plane in one program: each of its parts is a subcommand that
// takes the part's own flags. One program links once what five would link five times.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	part := os.Args[1]
	os.Args = append([]string{filepath.Join(filepath.Dir(os.Args[0]), part)}, os.Args[2:]...)
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kwok":
		exit(nodes(os.Args[1:]))
	default:
		usage()
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

// nodes is kwok, whose flags and configuration are read before its command exists.
func nodes(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	early := pflag.NewFlagSet("early", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, _ = log.InitFlags(ctx, early)
	ctx, err := config.InitFlags(ctx, early)
	if err != nil {
		return err
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(early)
	command.Version = "" // Kubernetes has put a flag of that name, with values of its own, among the flags of all.
	command.SetArgs(args)
	return command.ExecuteContext(ctx)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kwok …")
	os.Exit(2)
}
