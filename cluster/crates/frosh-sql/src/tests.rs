//! The functions on a local DataFusion, against the library's own results, byte for byte.

mod quantizer;

use crate::{register, session_config, set_partitions};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, FixedSizeListArray, Int64Array,
    LargeListArray, ListArray, PrimitiveArray, RecordBatch,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{
    DataType, Field, Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type,
};
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use frosh::{Config, Element, Hasher, Rows, Sketch, Sketcher};
use std::sync::Arc;

const DIM: usize = 12;

/// Whole numbers from -60 to 60, which all element types hold (for u8, without their signs).
fn numbers(seed: u64, rows: usize) -> Vec<i8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..rows * DIM).map(|i| ((next() % (61 + 5 * (i % DIM) as u64)) as i8) - 50).collect()
}

fn field(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new_list_field(kind, true))
}

/// The three kinds of lists, with the same rows.
fn lists(values: ArrayRef) -> Vec<ArrayRef> {
    let (field, rows) = (field(values.data_type().clone()), values.len() / DIM);
    let fixed = FixedSizeListArray::new(Arc::clone(&field), DIM as i32, Arc::clone(&values), None);
    let lengths = || std::iter::repeat_n(DIM, rows);
    let list = ListArray::new(
        Arc::clone(&field),
        OffsetBuffer::from_lengths(lengths()),
        Arc::clone(&values),
        None,
    );
    let large = LargeListArray::new(field, OffsetBuffer::from_lengths(lengths()), values, None);
    vec![Arc::new(fixed), Arc::new(list), Arc::new(large)]
}

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

/// A context with a table `t` of these partitions, each in batches of 37 rows.
fn context(partitions: &[RecordBatch]) -> SessionContext {
    let context =
        SessionContext::new_with_config(set_partitions(session_config(), partitions.len()));
    register(&context);
    let split = |whole: &RecordBatch| {
        let starts = (0..whole.num_rows()).step_by(37);
        starts.map(|at| whole.slice(at, 37.min(whole.num_rows() - at))).collect::<Vec<_>>()
    };
    let parts = partitions.iter().map(split).collect();
    let mem = MemTable::try_new(partitions[0].schema(), parts).unwrap();
    context.register_table("t", Arc::new(mem)).unwrap();
    context
}

async fn column(context: &SessionContext, sql: &str) -> Result<ArrayRef, String> {
    let query = context.sql(sql).await.map_err(|e| e.to_string())?;
    let batches = query.collect().await.map_err(|e| e.to_string())?;
    let columns: Vec<&dyn Array> = batches.iter().map(|b| b.column(0).as_ref()).collect();
    Ok(datafusion::arrow::compute::concat(&columns).unwrap())
}

/// The only value of a query, as bytes.
async fn bytes(context: &SessionContext, sql: &str) -> Result<Option<Vec<u8>>, String> {
    let column = column(context, sql).await?;
    assert_eq!(column.len(), 1, "{sql}");
    Ok(crate::binary::values("test", &column).unwrap().next().unwrap().map(<[u8]>::to_vec))
}

async fn text(context: &SessionContext, sql: &str) -> serde_json::Value {
    let column = column(context, sql).await.unwrap();
    serde_json::from_str(column.as_string::<i32>().value(0)).unwrap()
}

fn config() -> Config {
    Config::new(DIM).sketch_rows(8).seed(3).worker_from_rows()
}

fn sketch<T: Element>(rows: &[T]) -> Sketch {
    let mut sketcher = Sketcher::new(config()).unwrap();
    sketcher.push(Rows::new(rows, DIM).unwrap()).unwrap();
    sketcher.finish()
}

/// Sketches, models and codes of one element type against the library.
async fn check_type<P: ArrowPrimitiveType<Native: Element>>(make: impl Fn(i8) -> P::Native) {
    let parts: Vec<Vec<P::Native>> = [(1, 700), (2, 90), (3, 400)]
        .iter()
        .map(|(seed, n)| numbers(*seed, *n).into_iter().map(&make).collect())
        .collect();
    let merged = Sketch::merge(&parts.iter().map(|p| sketch(p)).collect::<Vec<_>>()).unwrap();
    let hasher = merged.hasher(4).unwrap();
    for kind in 0..3 {
        let batches: Vec<RecordBatch> = parts
            .iter()
            .map(|part| {
                let values = PrimitiveArray::<P>::new(ScalarBuffer::from(part.clone()), None);
                table(vec![("v", Arc::clone(&lists(Arc::new(values))[kind]))])
            })
            .collect();
        let context = context(&batches);
        let got = bytes(&context, "SELECT frosh_sketch(v, 'bits=4, seed=3') FROM t").await.unwrap();
        assert_eq!(got.unwrap(), merged.to_bytes(), "{}", P::DATA_TYPE);
        let sql = "SELECT frosh_model(frosh_sketch(v, 'sketch_rows=8, seed=3'), 4) FROM t";
        assert_eq!(bytes(&context, sql).await.unwrap().unwrap(), hasher.to_bytes());
        let sql = format!("SELECT frosh_encode(v, (SELECT model FROM ({sql}) AS m(model))) FROM t");
        let codes = column(&context, &sql).await.unwrap();
        let all = parts.concat();
        let want = hasher.encode(Rows::new(&all, DIM).unwrap()).unwrap();
        let mut got: Vec<&[u8]> = codes.as_binary::<i32>().iter().flatten().collect();
        let mut want: Vec<&[u8]> = (0..want.len()).map(|i| want.row(i)).collect();
        // Partitions come in any order.
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_of_every_element_type_equals_the_library() {
    check_type::<Float16Type>(|x| half::f16::from_f32(f32::from(x))).await;
    check_type::<Float32Type>(f32::from).await;
    check_type::<Float64Type>(f64::from).await;
    check_type::<Int8Type>(|x| x).await;
    check_type::<UInt8Type>(i8::unsigned_abs).await;
}

fn floats(seed: u64, rows: usize) -> Vec<f32> {
    numbers(seed, rows).into_iter().map(|x| f32::from(x) / 4.0).collect()
}

fn vectors(values: Vec<f32>) -> ArrayRef {
    Arc::clone(&lists(Arc::new(PrimitiveArray::<Float32Type>::from(values)))[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_have_the_sketches_of_their_own_rows() {
    let parts: Vec<Vec<f32>> = (1..4).map(|seed| floats(seed, 300)).collect();
    let tenant = |row: usize| (row * row + row / 3) % 4;
    let batches: Vec<RecordBatch> = parts
        .iter()
        .map(|part| {
            let tenants = Int64Array::from_iter_values((0..300).map(|row| tenant(row) as i64));
            table(vec![("tenant", Arc::new(tenants)), ("v", vectors(part.clone()))])
        })
        .collect();
    let context = context(&batches);
    for group in 0..4 {
        let sketches: Vec<Sketch> = parts
            .iter()
            .map(|part| {
                let rows = part.chunks(DIM).enumerate().filter(|(row, _)| tenant(*row) == group);
                sketch(&rows.flat_map(|(_, x)| x.to_vec()).collect::<Vec<f32>>())
            })
            .collect();
        let want = Sketch::merge(&sketches).unwrap();
        let sql = format!(
            "SELECT s FROM (SELECT tenant, frosh_sketch(v, 'bits=4, seed=3') AS s FROM t GROUP BY tenant) \
             WHERE tenant = {group}"
        );
        assert_eq!(bytes(&context, &sql).await.unwrap().unwrap(), want.to_bytes());
    }
    // All tenants again, from their stored sketches. Merging in another tree gives other last digits, but the same rows.
    let sql = "SELECT frosh_info(frosh_merge(s)) FROM (SELECT frosh_sketch(v, 'bits=4') AS s FROM t GROUP BY tenant)";
    let info = text(&context, sql).await;
    assert_eq!((info["rows"].as_u64(), info["parts"].as_u64()), (Some(900), Some(12)));
}

#[tokio::test(flavor = "multi_thread")]
async fn merging_stored_sketches_equals_the_library() {
    let sketches: Vec<Sketch> =
        (1..6).map(|seed| sketch(&floats(seed, 200)).with_left_out(seed)).collect();
    let want = Sketch::merge(&sketches).unwrap();
    let mut stored: Vec<Option<Vec<u8>>> = sketches.iter().map(|s| Some(s.to_bytes())).collect();
    stored.push(None);
    for cut in [1, 3, 5] {
        let part = |values: &[Option<Vec<u8>>]| {
            let values: BinaryArray = values.iter().map(|x| x.as_deref()).collect();
            table(vec![("s", Arc::new(values))])
        };
        let context = context(&[part(&stored[cut..]), part(&stored[..cut])]);
        let got = bytes(&context, "SELECT frosh_merge(s) FROM t").await.unwrap().unwrap();
        assert_eq!(got, want.to_bytes());
        let info = text(&context, "SELECT frosh_info(frosh_merge(s)) FROM t").await;
        assert_eq!((info["rows"].as_u64(), info["left_out"].as_u64()), (Some(1000), Some(15)));
        let no = bytes(&context, "SELECT frosh_merge(s) FROM t WHERE s IS NULL").await.unwrap();
        assert_eq!(no, None);
    }
    let other = table(vec![("s", Arc::new(BinaryArray::from_vec(vec![b"x"])))]);
    let error = bytes(&context(&[other]), "SELECT frosh_merge(s) FROM t").await.unwrap_err();
    assert!(error.contains("row 0 of its batch is not a sketch"), "{error}");
}

/// 100 rows, of which 40 is null, 41 has a null value, 60 a NaN, 99 an infinity; row 70 is short if `ragged`.
fn bad_rows(ragged: bool) -> (ArrayRef, Vec<usize>) {
    let mut values = floats(9, 100);
    (values[60 * DIM + 3], values[99 * DIM]) = (f32::NAN, f32::INFINITY);
    let nulls = NullBuffer::from_iter((0..100).map(|row| row != 40));
    let value_nulls = NullBuffer::from_iter((0..100 * DIM).map(|i| i != 41 * DIM + 5));
    let mut bad = vec![40, 41, 60, 99];
    if !ragged {
        let values = PrimitiveArray::<Float32Type>::new(values.into(), Some(value_nulls));
        let field = field(DataType::Float32);
        return (
            Arc::new(FixedSizeListArray::new(field, DIM as i32, Arc::new(values), Some(nulls))),
            bad,
        );
    }
    bad.push(70);
    let lengths = (0..100).map(|row| if row == 70 { DIM - 1 } else { DIM });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let keep: Vec<usize> = (0..100 * DIM).filter(|i| *i != 71 * DIM - 1).collect();
    let value_nulls = NullBuffer::from_iter(keep.iter().map(|i| value_nulls.is_valid(*i)));
    let values: Vec<f32> = keep.iter().map(|i| values[*i]).collect();
    let values = PrimitiveArray::<Float32Type>::new(values.into(), Some(value_nulls));
    (
        Arc::new(ListArray::new(field(DataType::Float32), offsets, Arc::new(values), Some(nulls))),
        bad,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_rows_are_named_or_left_out_and_counted() {
    for ragged in [false, true] {
        let (array, bad) = bad_rows(ragged);
        let all = context(&[table(vec![("v", Arc::clone(&array))])]);
        let good: Vec<f32> = floats(9, 100)
            .chunks(DIM)
            .enumerate()
            .filter(|(row, _)| !bad.contains(row))
            .flat_map(|(_, x)| x.to_vec())
            .collect();
        let want = sketch(&good).with_left_out(bad.len() as u64);
        let sql = "SELECT frosh_sketch(v, 'bits=4, seed=3, skip_bad') FROM t";
        assert_eq!(bytes(&all, sql).await.unwrap().unwrap(), want.to_bytes());
        let sql = "SELECT frosh_info(frosh_sketch(v, 'bits=4, skip_bad')) FROM t";
        assert_eq!(text(&all, sql).await["left_out"], bad.len());
        // Codes of bad rows are null.
        let model = sketch(&good).hasher(4).unwrap();
        let models =
            table(vec![("model", Arc::new(BinaryArray::from_vec(vec![&model.to_bytes()])))]);
        let models = MemTable::try_new(models.schema(), vec![vec![models]]).unwrap();
        all.register_table("m", Arc::new(models)).unwrap();
        let codes =
            column(&all, "SELECT frosh_encode(v, model, 'skip_bad') FROM t, m").await.unwrap();
        let nulls: Vec<usize> = (0..100).filter(|row| codes.is_null(*row)).collect();
        let mut sorted = bad.clone();
        sorted.sort_unstable();
        assert_eq!(nulls, sorted);
        // Errors, one after the other.
        let reasons = [
            (0..60, "row 40 of its partition (row 3 of its batch", "the vector is null", "row"),
            (41..60, "row 0 of its partition", "value 5 is null", "row 0 of its batch"),
            (60..90, "row 0 of its partition", "value 3 is NaN", "row 0 of its batch"),
            (75..100, "row 24 of its partition", "value 0 is inf", "row 24 of its batch"),
            (65..75, "row 5 of its partition", "has 11 values, expected 12", "row 5 of its batch"),
        ];
        for (rows, place, why, code_place) in reasons.iter().take(if ragged { 5 } else { 4 }) {
            let some = context(&[table(vec![("v", array.slice(rows.start, rows.len()))])]);
            let error = bytes(&some, "SELECT frosh_sketch(v) FROM t").await.unwrap_err();
            assert!(
                error.contains(place) && error.contains(why) && error.contains("skip_bad"),
                "{error}"
            );
            let models =
                table(vec![("model", Arc::new(BinaryArray::from_vec(vec![&model.to_bytes()])))]);
            let models = MemTable::try_new(models.schema(), vec![vec![models]]).unwrap();
            some.register_table("m", Arc::new(models)).unwrap();
            let codes = column(&some, "SELECT frosh_encode(v, model) FROM t, m").await;
            if rows.start > 40 {
                let error = codes.unwrap_err();
                assert!(error.contains(code_place) && error.contains(why), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rows_give_null() {
    let empty = context(&[table(vec![("v", vectors(Vec::new()))])]);
    assert_eq!(bytes(&empty, "SELECT frosh_sketch(v) FROM t").await.unwrap(), None);
    assert_eq!(bytes(&empty, "SELECT frosh_model(frosh_sketch(v), 8) FROM t").await.unwrap(), None);
    // A partition without rows does not change the sketch of the others.
    let part = floats(1, 50);
    let two = context(&[
        table(vec![("v", vectors(part.clone()))]),
        table(vec![("v", vectors(Vec::new()))]),
    ]);
    let got =
        bytes(&two, "SELECT frosh_sketch(v, 'bits=4, seed=3') FROM t").await.unwrap().unwrap();
    assert_eq!(got, sketch(&part).to_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_explained() {
    let columns = vec![
        ("v", vectors(floats(1, 50))),
        ("id", Arc::new(Int64Array::from_iter_values(0..50)) as ArrayRef),
        ("b", Arc::new(BinaryArray::from_iter_values((0..50).map(|_| b"abc"))) as ArrayRef),
    ];
    let context = context(&[table(columns)]);
    for (sql, said) in [
        ("SELECT frosh_sketch(id) FROM t", "expected List, LargeList or FixedSizeList"),
        ("SELECT frosh_sketch(v, 7) FROM t", "takes a vector and a text of options"),
        ("SELECT frosh_sketch(v, 'bit=4') FROM t", "no option \"bit\""),
        ("SELECT frosh_sketch(v, concat('bits=', CAST(id AS VARCHAR))) FROM t", "literal text"),
        ("SELECT frosh_sketch(v, 'dim=13') FROM t", "12 values, but the options say dim=13"),
        ("SELECT frosh_model(frosh_sketch(v), 99) FROM t", "99 bits"),
        ("SELECT frosh_model(frosh_sketch(v), -1) FROM t", "-1 bits"),
        ("SELECT frosh_model(b, 8) FROM t", "row 0 of its batch"),
        ("SELECT frosh_encode(v, b) FROM t", "the model"),
        ("SELECT frosh_hamming(b, x'00') FROM t", "codes of 3 and 1 bytes are of different models"),
        ("SELECT frosh_hamming(b) FROM t", "takes two codes"),
        ("SELECT frosh_info(b) FROM t", "neither a sketch nor a model"),
        ("SELECT frosh_merge(id) FROM t", "takes one argument: a sketch"),
        ("SELECT frosh_model(frosh_sketch(v), 2) FROM t WHERE id = 1", "all equal"),
    ] {
        let error = column(&context, sql).await.unwrap_err();
        assert!(error.contains(said), "{sql}: {error}");
    }
    let distances = column(&context, "SELECT frosh_hamming(b, x'616260') FROM t").await.unwrap();
    assert_eq!(distances.as_primitive::<datafusion::arrow::datatypes::UInt32Type>().value(0), 2);
}

#[test]
fn every_bit_of_a_code_counts() {
    // Lengths with and without a rest after whole words.
    for bytes in [1, 7, 8, 9, 16, 33] {
        let zero = vec![0u8; bytes];
        for bit in 0..bytes * 8 {
            let mut one = zero.clone();
            one[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(crate::scalars::bits_that_differ(&zero, &one), 1);
        }
        assert_eq!(crate::scalars::bits_that_differ(&zero, &vec![255; bytes]), bytes as u32 * 8);
    }
}

/// Writes vectors to a Parquet file with small row groups.
fn write_parquet(path: &std::path::Path, values: Vec<f32>) {
    let batch = table(vec![("v", vectors(values))]);
    let properties = datafusion::parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(100))
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_split_is_one_partition_for_each_file_whatever_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [950, 20, 400, 310, 1, 777];
    let parts: Vec<Vec<f32>> =
        sizes.iter().enumerate().map(|(i, n)| floats(i as u64 + 1, *n)).collect();
    for (i, part) in parts.iter().enumerate() {
        write_parquet(&folder.path().join(format!("{i}.parquet")), part.clone());
    }
    let want = Sketch::merge(&parts.iter().map(|p| sketch(p)).collect::<Vec<_>>()).unwrap();
    // Exactly as many partitions as files, or more: as on a machine with many cores.
    for partitions in [6, 7, 48] {
        // Files of a few kilobytes would not be cut anyway, unless the smallest size is set.
        let mut config = set_partitions(session_config(), partitions).with_batch_size(64);
        config.options_mut().optimizer.repartition_file_min_size = 0;
        let context = SessionContext::new_with_config(config);
        register(&context);
        let path = folder.path().to_str().unwrap();
        context.register_parquet("t", path, ParquetReadOptions::default()).await.unwrap();
        let query = context.sql("SELECT frosh_sketch(v, 'bits=4, seed=3') FROM t").await.unwrap();
        let plan = query.clone().create_physical_plan().await.unwrap();
        let plan = displayable(plan.as_ref()).indent(false).to_string();
        assert!(plan.contains("AggregateExec: mode=Partial"), "{plan}");
        assert!(plan.contains("file_groups={6 groups"), "{plan}");
        assert!(!plan.contains("RepartitionExec") && !plan.contains(".parquet:"), "{plan}");
        let got = bytes(&context, "SELECT frosh_sketch(v, 'bits=4, seed=3') FROM t").await;
        assert_eq!(got.unwrap().unwrap(), want.to_bytes(), "{partitions}");
        let sql = "SELECT frosh_sketch(v, 'bits=4, seed=3') FROM t GROUP BY v[1] > 1e9";
        assert_eq!(bytes(&context, sql).await.unwrap().unwrap(), want.to_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_statements_train_encode_and_search() {
    let columns = |seed: u64| {
        let ids = Int64Array::from_iter_values((0..200).map(|i| i + seed as i64 * 1000));
        table(vec![("id", Arc::new(ids)), ("v", vectors(floats(seed, 200)))])
    };
    let context = context(&[columns(1), columns(2)]);
    let train =
        "CREATE TABLE models AS SELECT frosh_model(frosh_sketch(v, 'bits=8'), 8) AS model FROM t";
    context.sql(train).await.unwrap();
    let encode = "CREATE TABLE codes AS SELECT id, frosh_encode(v, model) AS code FROM t, models";
    context.sql(encode).await.unwrap();
    let search = "SELECT c.id FROM codes c, codes q WHERE q.id = 1017 \
                  ORDER BY frosh_hamming(c.code, q.code), c.id LIMIT 10";
    let found = column(&context, search).await.unwrap();
    let model = bytes(&context, "SELECT model FROM models").await.unwrap().unwrap();
    let hasher = Hasher::from_bytes(&model).unwrap();
    let all = [floats(1, 200), floats(2, 200)].concat();
    let codes = hasher.encode(Rows::new(&all, DIM).unwrap()).unwrap();
    let mut order: Vec<usize> = (0..400).collect();
    order.sort_by_key(|row| (codes.distance(17, &codes, *row).unwrap(), *row));
    let id = |row: &usize| (row / 200 + 1) as i64 * 1000 + (row % 200) as i64;
    let want: Vec<i64> = order[..10].iter().map(id).collect();
    let found = found.as_primitive::<datafusion::arrow::datatypes::Int64Type>();
    assert_eq!(found.values().to_vec(), want);
    let info = text(&context, "SELECT frosh_info(model) FROM models").await;
    assert_eq!((info["kind"].as_str(), info["bits"].as_u64()), (Some("model"), Some(8)));
}
