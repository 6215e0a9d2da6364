#!/bin/bash
# A conversion directory as a user of the Acuity toolkit keeps it: 0_import_model, 1_quantize_model, inference, 2_export_case_code.
# Arguments: the model, a list of calibration samples, a list of test samples, a file with their labels.
set -e
NAME=digits
MODEL=$1
CALIBRATION=$2
TEST=$3
LABELS=$4
ACUITY_PATH=./bin/
pegasus=$ACUITY_PATH/pegasus
COUNT=$(wc -l < "$TEST")

python3 $ACUITY_PATH/checkenv.py | tail -1

# 0_import_model.sh
$pegasus import onnx \
    --model "$MODEL" \
    --output-data ${NAME}.data \
    --output-model ${NAME}.json
$pegasus generate inputmeta \
    --model ${NAME}.json \
    --source-file "$CALIBRATION" \
    --input-meta-output ${NAME}_inputmeta.yml

# 1_quantize_model.sh
$pegasus quantize \
    --quantizer asymmetric_affine \
    --qtype uint8 \
    --rebuild \
    --with-input-meta ${NAME}_inputmeta.yml \
    --model ${NAME}.json \
    --model-data ${NAME}.data \
    --batch-size 1 \
    --iterations 50

# inference.sh: the samples are those of another list
sed "s|path: .*|path: $TEST|" ${NAME}_inputmeta.yml > ${NAME}_test.yml
for DTYPE in float32 quantized; do
    $pegasus inference \
        --dtype $DTYPE \
        --model ${NAME}.json \
        --model-data ${NAME}.data \
        --with-input-meta ${NAME}_test.yml \
        --batch-size "$COUNT" \
        --postprocess dump_result \
        --output-dir results_$DTYPE > /dev/null
    python3 - "$DTYPE" "$LABELS" results_$DTYPE/attach_*_out0_0_out0_*.tensor <<'EOF'
import sys

dtype, labels, results = sys.argv[1:]
labels = [int(line) for line in open(labels)]
values = [float(line) for line in open(results)]
width = len(values) // len(labels)
rows = [values[i * width : (i + 1) * width] for i in range(len(labels))]
hits = sum(row.index(max(row)) == label for row, label in zip(rows, labels))
print(f"{dtype} accuracy {hits / len(labels):.4f}")
EOF
done

# 2_export_case_code.sh
$pegasus export ovxlib \
    --model ${NAME}.json \
    --model-data ${NAME}.data \
    --model-quantize ${NAME}.quantize \
    --with-input-meta ${NAME}_inputmeta.yml \
    --dtype quantized \
    --optimize VIPNANOQI_PID0X88 \
    --viv-sdk $ACUITY_PATH/vcmdtools \
    --pack-nbg-unify \
    --output-path case_code/
python3 $ACUITY_PATH/extractoutput.py ${NAME}.json
cat outnamelist.txt
ls case_code_nbg_unify/network_binary.nb
