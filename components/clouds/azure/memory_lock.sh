while true; do
  for process in $(pidof containerd); do
    prlimit --pid "$process" --memlock=unlimited:unlimited
  done
  if [ -d /sys/module/nvidia ] && [ ! -d /sys/module/nvidia_peermem ]; then
    modprobe nvidia-peermem || echo "nvidia-peermem cannot be loaded yet"
  fi
  sleep 60
done
