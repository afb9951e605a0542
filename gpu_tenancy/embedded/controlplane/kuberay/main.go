// Command kuberay runs the controllers of KubeRay with the flags of its chart.
//
// KubeRay's own main function also registers webhooks, which are off by default and do not compile with the version of
// controller-runtime that Kueue needs: with it, KubeRay would need a module graph of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configapi "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	_ "github.com/ray-project/kuberay/ray-operator/pkg/features"
)

func main() {
	config, gates := configuration()
	logging := zap.Options{}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
		fail(err)
	}
	if err := run(ctrl.SetupSignalHandler(), config); err != nil {
		fail(err)
	}
}

// configuration reads the flags of the chart. Those that only change logs and metrics have no effect.
func configuration() (configapi.Configuration, string) {
	config := configapi.Configuration{EnableLeaderElection: new(bool), QPS: new(float64), Burst: new(int)}
	flag.StringVar(&config.MetricsAddr, "metrics-addr", "0", "address of the metrics")
	flag.StringVar(&config.ProbeAddr, "health-probe-bind-address", "", "address of the probes")
	flag.BoolVar(config.EnableLeaderElection, "enable-leader-election", false, "whether to elect a leader")
	flag.IntVar(&config.ReconcileConcurrency, "reconcile-concurrency", 1, "reconciles at the same time")
	flag.StringVar(&config.BatchScheduler, "batch-scheduler", "", "scheduler of pods")
	flag.BoolVar(&config.UseKubernetesProxy, "use-kubernetes-proxy", false, "whether to reach heads by the API server")
	flag.Float64Var(config.QPS, "qps", configapi.DefaultQPS, "requests to the API server per second")
	flag.IntVar(config.Burst, "burst", configapi.DefaultBurst, "burst of requests")
	flag.Bool("enable-metrics", false, "no effect")
	flag.String("log-stdout-encoder", "", "no effect")
	flag.String("log-file-encoder", "", "no effect")
	gates := flag.String("feature-gates", "", "feature gates")
	flag.Parse()
	return config, *gates
}

func run(ctx context.Context, config configapi.Configuration) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, rayv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	rest := ctrl.GetConfigOrDie()
	rest.QPS, rest.Burst = float32(*config.QPS), *config.Burst
	manager, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: config.MetricsAddr},
		HealthProbeBindAddress: config.ProbeAddr,
		LeaderElection:         *config.EnableLeaderElection,
		LeaderElectionID:       "ray-operator-leader",
	})
	if err != nil {
		return err
	}
	if err := controllers(ctx, manager, config); err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func controllers(ctx context.Context, manager ctrl.Manager, config configapi.Configuration) error {
	schedulers, err := batchscheduler.NewSchedulerManager(ctx, config, manager.GetConfig(), manager.GetClient())
	if err != nil {
		return err
	}
	schedulers.AddToScheme(manager.GetScheme())
	clusters := ray.NewReconciler(ctx, manager, ray.RayClusterReconcilerOptions{BatchSchedulerManager: schedulers})
	if err := clusters.SetupWithManager(manager, config.ReconcileConcurrency); err != nil {
		return err
	}
	services := ray.NewRayServiceReconciler(ctx, manager, config)
	if err := services.SetupWithManager(manager, config.ReconcileConcurrency); err != nil {
		return err
	}
	jobs := ray.NewRayJobReconciler(ctx, manager, ray.RayJobReconcilerOptions{BatchSchedulerManager: schedulers}, config)
	return jobs.SetupWithManager(manager, config.ReconcileConcurrency)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
