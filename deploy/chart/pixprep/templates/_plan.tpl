{{- /* An engine works only with one GPU type, one TensorRT version and one model: these three are its cache key. */ -}}
{{- define "pixprep.plan" -}}
- name: plan
  image: {{ include "pixprep.image" . }}
  command: [/bin/sh, -euc]
  args:
    - |
      PATH="$PATH:/usr/src/tensorrt/bin"
      gpu=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
      version=$(trtexec --help 2>&1 | sed -n 's/.*TensorRT v\([0-9]*\).*/\1/p' | head -n 1)
      hash=$(sha256sum "$ONNX" | cut -c 1-16)
      shapes=$(printf '%s %s %s' "$MIN" "$OPT" "$MAX" | sha256sum | cut -c 1-8)
      kept="/plans/sm$gpu-trt$version-$hash-$shapes.plan"
      if [ ! -s "$kept" ]; then
          made="$kept.$HOSTNAME"
          trtexec --onnx="$ONNX" --saveEngine="$made" --minShapes="$MIN" --optShapes="$OPT" --maxShapes="$MAX"
          mv "$made" "$kept"
      fi
      cp "$kept" "$PLAN"
  env:
    - {name: ONNX, value: {{ printf "%s/%s" .Values.models.path .Values.plan.onnx | quote }}}
    - {name: PLAN, value: {{ printf "%s/%s" .Values.models.path .Values.plan.output | quote }}}
    - {name: MIN, value: {{ .Values.plan.shapes.min | quote }}}
    - {name: OPT, value: {{ .Values.plan.shapes.opt | quote }}}
    - {name: MAX, value: {{ .Values.plan.shapes.max | quote }}}
  resources:
    limits: {nvidia.com/gpu: {{ .Values.gpus }}}
  securityContext: {{- include "pixprep.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: {{ .Values.models.path }}}
    - {name: scratch, mountPath: /tmp}
    - {name: {{ empty .Values.plan.claim | ternary "scratch" "plans" }}, mountPath: /plans}
{{- end -}}
